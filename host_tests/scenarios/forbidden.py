"""Messages that the broker refuses by closing the connection. All others must pass."""

BROKER = "forbidding"
VERSIONS = (4, None)

GIVE_UP = 3


def _mixed(env, qos, clean):
    """A forbidden message among good ones: all of those arrive, and the client goes on."""
    reports = env.Reports()
    topic, forbidden = env.name(b"good%d" % qos), env.name(b"%d/forbidden" % qos)
    subscriber = env.client(b"s%d" % qos, incoming=100)
    inbox = env.subscribed(subscriber, topic, 2)
    publisher = env.client(
        b"p%d" % qos, clean_session=clean, give_up=GIVE_UP, on_dropped=reports.take, tx_size=512
    )
    wanted = []

    def good(number):
        payload = b"%d" % number
        wanted.append(payload)
        publish(topic, payload, 1 + number % 2)

    def publish(*message):
        accepted = publisher.publish(*message)
        env.equal(accepted is None, False, "no room for " + repr(message))
        return accepted

    def all_are_there():
        came = inbox.payloads()
        return not publisher.pending and all(payload in came for payload in wanted)

    for number in range(3):
        good(number)
    identifier = publish(forbidden, b"bad", qos)
    for number in range(3, 6):
        good(number)
    publisher.start()
    env.until("the first", all_are_there, publisher, subscriber)
    # What was handed to the network at QoS 0 is not kept, so there is nothing to set aside.
    report = [(identifier, forbidden)] if qos else []
    env.dropped(publisher, reports, report)
    # Once more on a connection that has been used.
    env.until("the broker", lambda: publisher.connected, publisher)
    good(6)
    again = publish(forbidden, b"bad", qos)
    good(7)
    env.until("the second", all_are_there, publisher, subscriber)
    if qos:
        report.append((again, forbidden))
    env.dropped(publisher, reports, report)
    env.until("the broker", lambda: publisher.connected, publisher)
    publish(topic, b"end", 2)
    env.until("the end", lambda: not publisher.pending, publisher, subscriber)
    env.arrives(inbox, b"end", publisher, subscriber)
    for payload in wanted if not clean else []:
        if int(payload) % 2:
            env.equal(inbox.payloads().count(payload), 1, "copies at QoS 2 of " + repr(payload))
    env.equal(publisher.connected, True, "connected")


def at_each_qos_in_a_clean_session(env):
    """At QoS 0 the message is gone once it is sent, at QoS 1 and 2 set aside after some tries.

    What else was under way is sent again.
    """
    for qos in range(3):
        _mixed(env, qos, True)


def at_each_qos_in_a_kept_session(env):
    """The same where the broker keeps the session."""
    for qos in range(3):
        _mixed(env, qos, False)


def nothing_but_forbidden_messages(env):
    """Every slot in flight and most of the queue are full of them. Each is set aside."""
    inbox = env.Inbox()
    reports = env.Reports()
    topic, forbidden = env.name(b"good"), env.name(b"forbidden")
    # A kept session, so that what comes back outlives the connections that are closed.
    client = env.client(b"p", give_up=1, on_dropped=reports.take, inflight=4, clean_session=False)
    client.subscribe(topic, inbox.take, qos=1)
    wanted = []
    for number in range(4):
        wanted.append((client.publish(forbidden, b"bad", 1 + number % 2), forbidden))
    env.equal(client.publish(topic, b"full", 1), None, "room")
    client.start()
    env.until("room", lambda: client.publish(topic, b"good", 1) is not None, client)
    env.until("the rest", lambda: client.pending == 0, client)
    reports.seen.sort()  # which one is first is the broker's choice
    env.dropped(client, reports, sorted(wanted))
    env.arrives(inbox, b"good", client)


def set_aside_by_hand(env):
    """Without giving up, the message is sent again and again, until the application drops it."""
    inbox = env.Inbox()
    reports = env.Reports()
    topic, forbidden = env.name(b"good"), env.name(b"forbidden")
    client = env.client(b"p", give_up=0, on_dropped=reports.take, clean_session=False)
    client.subscribe(topic, inbox.take, qos=1)
    identifier = client.publish(forbidden, b"bad", 1)
    client.publish(topic, b"good", 1)
    client.start()
    env.until("losses", lambda: client.stats.losses >= 8, client)
    env.equal(client.stats.dropped, 0, "dropped")
    env.equal(client.drop(identifier), True, "drop")
    env.equal(client.drop(identifier), False, "drop of what is gone")
    env.until("the rest", lambda: client.pending == 0, client)
    env.equal((client.stats.dropped, reports.seen[:1]), (1, reports.seen), "reports")
    env.arrives(inbox, b"good", client)
