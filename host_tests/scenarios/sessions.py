"""Sessions that the broker keeps, or must not keep."""

BROKER = "shared"


def messages_queued_while_away(env):
    """A persistent session gets, on its return, what was published at QoS 1 and 2 meanwhile."""
    topic = env.name(b"queue")
    inbox = env.Inbox()

    def member():
        client = env.client(b"member", clean_session=False)
        client.subscribe(topic, inbox.take, qos=2)
        return client

    first = member()
    env.subscribed(first, env.name(b"other"), 1)
    env.equal(first.session_present, False, "session present at first")
    first.disconnect()
    publisher = env.online(b"p")
    wanted = []
    for number in range(6):
        qos = 1 + number % 2
        payload = b"%d at %d" % (number, qos)
        env.published(publisher, topic, payload, qos)
        wanted.append((topic, payload, env.expected["delivered"][(qos, 2)], False))
    env.equal(len(inbox), 0, "messages while away")
    second = member()
    second.connect(timeout_ms=15000)
    env.equal(second.session_present, True, "session present on return")
    env.arrive(inbox, 6, second)
    env.published(publisher, topic, b"live", 1)
    env.arrives(inbox, b"live", second)
    queued = inbox.messages[:6]
    if not env.expected["order after an outage"]:
        queued.sort()
    env.equal(queued, wanted, "queued")
    env.equal(len(inbox), 7, "messages in all")
    second.disconnect()
    # A clean session with that identifier ends the kept one.
    third = env.online(b"member")
    env.equal(third.session_present, False, "session present in a clean session")
    third.disconnect()
    fourth = member()
    fourth.connect(timeout_ms=15000)
    env.equal(fourth.session_present, False, "session present after a clean session")
    fourth.disconnect()
    env.online(b"member").disconnect()


def clean_session_forgets(env):
    """A clean session gets nothing of what was published while it was away."""
    topic = env.name(b"forget")
    inbox = env.Inbox()
    publisher = env.online(b"p")
    for turn in range(2):
        client = env.client(b"c")
        subscription = client.subscribe(topic, inbox.take, qos=1)
        client.start()
        env.granted(subscription, client)
        env.equal(client.session_present, False, "session present")
        env.published(publisher, topic, b"here %d" % turn, 1)
        env.arrive(inbox, turn + 1, client)
        client.disconnect()
        env.published(publisher, topic, b"away %d" % turn, 1)
    env.equal(inbox.payloads(), [b"here 0", b"here 1"], "messages")
