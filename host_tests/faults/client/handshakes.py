"""The broker dies, or somebody takes over, in the middle of an acknowledgement."""

TYPES = {"PUBLISH": 3, "PUBACK": 4, "PUBREC": 5, "PUBREL": 6, "PUBCOMP": 7}


def _outgoing(env, client, what):
    """Publish while a packet of the type in `option`, "way type qos", is watched for."""
    way, kind, qos = env.option.split("-")
    env.ask("watch", way, TYPES[kind], *what)
    env.fault()
    for _ in range(3):
        env.accepted(client, int(qos))
    env.loses(client, "closed")
    env.accepted(client, int(qos))


def _incoming(env, client, what):
    """The same while messages come that waited for the client."""
    way, kind, qos = env.option.split("-")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)
    env.ask("publish", qos, 3)
    wanted = sum(env.got) + 3
    env.ask("watch", way, TYPES[kind], *what)
    env.fault()
    env.until("the broker", lambda: client.connected, client)
    env.loses(client, "closed")
    return wanted


def outgoing_killed(env, client):
    """kill -9 when the packet is about to pass; then the broker is back with its files."""
    _outgoing(env, client, ["kill"])
    env.ask("restart")


def incoming_killed(env, client):
    """The same for messages that come."""
    wanted = _incoming(env, client, ["kill"])
    env.ask("restart")
    env.until("the messages", lambda: sum(env.got) >= wanted, client)


def incoming_in_doubt(env, client):
    """PUBRECs are lost, then a CONNACK; the next link is cut before the messages come again."""
    losses = client.stats.losses
    wanted = env.got[2] + 3
    env.ask("watch", "up", TYPES["PUBREC"], "cut")
    env.ask("limit", "down", 0, "cut")
    env.fault()
    env.ask("publish", 2, 3)
    env.until("the lost CONNACK", lambda: client.stats.losses == losses + 2, client)
    env.ask("watch", "down", TYPES["PUBLISH"], "cut")
    env.until("the next loss", lambda: client.stats.losses == losses + 3, client)
    env.saw(env.reason(client))
    env.until("the messages", lambda: env.got[2] >= wanted, client)


def taken_over(env, client):
    """A second client takes the session over in the middle of a handshake, and goes."""
    _outgoing(env, client, ["intrude", env.token.decode() + "-c"])
    env.recovers(client)
    env.equal(client.session_present, True, "session present")


def session_forgotten(env, client):
    """The broker forgets the session in the middle of a handshake, publishes waiting.

    They go again as new.
    """
    env.ask("forgotten")
    _outgoing(env, client, ["forget", env.token.decode() + "-c"])
    env.accepted(client, 1)
    env.until("the broker", lambda: client.connected, client)
    env.equal(client.session_present, False, "session present")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.equal(client.stats.renewed > 0, True, "renewed")


def two_clients_one_identifier(env, first):
    """Each takes the connection from the other. Nothing that either accepted is lost."""
    second = env.client(b"c", clean_session=1)
    env.ask("often")
    env.fault()
    second.start()
    began = first.stats.losses
    env.until("the loss", lambda: first.stats.losses > began, first, second)
    env.saw(env.reason(first))
    other = env.name(b"up/other")
    while first.stats.losses < began + 4 or second.stats.losses < 4:
        env.publish(first, 1)
        env.poll(first)
        env.publish(second, 1, topic=other)
        env.poll(second)
    first.disconnect()
    env.until("the second", lambda: second.pending == 0 and second.connected, second)
    second.disconnect()
    first.start()
