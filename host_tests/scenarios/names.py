"""Topic aliases, and client identifiers that the broker gives."""

from flatmq import Client

BROKER = "shared"
VERSIONS = (5,)


def aliases(env):
    """Messages with an alias arrive under their topic names.

    They do so while the name is sent, when two bytes stand for it, when the broker takes no
    more aliases, and on the next connection.
    """
    subscriber = env.client(b"s")
    inbox = env.subscribed(subscriber, env.name(b"a/+"), 0)
    publisher = env.client(b"p")
    numbered = [publisher.alias(env.name(b"a/%d" % number)) for number in range(12)]
    wanted = []
    for _connection in range(2):
        publisher.connect(timeout_ms=15000)
        for turn in range(3):
            for number, alias in enumerate(numbered):
                wanted.append((env.name(b"a/%d" % number), b"%d" % turn, 0, False))
                env.equal(alias.publish(b"%d" % turn), 0, "accepted")
                env.until("the network", lambda: not publisher.pending, publisher)
        env.arrive(inbox, len(wanted), subscriber)
        publisher.disconnect()
    env.equal(inbox.messages, wanted, "messages")
    env.equal(publisher.stats.connects, 2, "connects")


def assigned_client_identifier(env):
    """A client without an identifier is given one, and keeps it.

    So its session is found again.
    """
    inbox = env.Inbox()
    topic = env.name(b"assigned")
    client = Client(
        b"", env.host, env.port, version=5, clean_session=False, retry_ms=20, retry_max_ms=100
    )
    client.subscribe(topic, inbox.take, qos=1)
    if not env.expected["gives identifiers"]:
        env.fails_to_connect(client, 0x85)
        return
    client.connect(timeout_ms=15000)
    given = client.server.client_id
    env.equal(bool(given), True, "given an identifier")
    env.published(client, topic, b"1", 1)
    env.arrive(inbox, 1, client)
    client.disconnect()
    publisher = env.online(b"p")
    env.published(publisher, topic, b"away", 1)
    client.connect(timeout_ms=15000)
    env.equal((client.session_present, client.server.client_id), (True, given), "the same session")
    env.arrives(inbox, b"away", client)
    client.disconnect(session_expiry=0)
