"""The lifetimes of sessions, messages and wills in MQTT 5."""

from flatmq.properties import Properties

BROKER = "shared"
VERSIONS = (5,)

EXPIRY = 0x02
PATIENCE_MS = 2500  # after which what lasts for 1 s is over, however a broker rounds


def _passes(env, ms, *clients):
    """Have time pass, while the clients are served."""
    began = env.ticks_ms()
    env.until("the time", lambda: env.ticks_diff(env.ticks_ms(), began) >= ms, *clients)


def session_kept_and_ended(env):
    """The broker keeps a session for `session_expiry`; DISCONNECT with 0 ends it."""
    topic = env.name(b"kept")
    inbox = env.Inbox()

    def member():
        client = env.client(b"m", clean_session=False, session_expiry=1000)
        subscription = client.subscribe(topic, inbox.take, qos=1)
        client.connect(timeout_ms=15000)
        env.granted(subscription, client)
        return client

    first = member()
    env.equal(first.session_present, False, "session present at first")
    env.published(first, topic, b"live", 1)
    env.arrive(inbox, 1, first)
    first.disconnect()
    publisher = env.online(b"p")
    env.published(publisher, topic, b"away", 1)
    second = member()
    env.equal(second.session_present, True, "session present after DISCONNECT")
    env.arrive(inbox, 2, second)
    second.disconnect(session_expiry=0)
    env.published(publisher, topic, b"nobody", 1)
    third = member()
    ends = env.expected["DISCONNECT ends the session"]
    env.equal(third.session_present, not ends, "session present after it ended")
    env.published(publisher, topic, b"again", 1)
    env.arrives(inbox, b"again", third)
    wanted = [b"live", b"away", b"again"] if ends else [b"live", b"away", b"nobody", b"again"]
    env.equal(inbox.payloads(), wanted, "messages")
    third.disconnect(session_expiry=0)


def session_expires(env):
    """After `session_expiry` without a connection the session is gone.

    The client goes on as a new one: what it has accepted arrives, and its subscriptions
    return.
    """
    topic = env.name(b"gone")
    inbox = env.Inbox()
    client = env.client(b"c", clean_session=False, session_expiry=1)
    client.subscribe(topic, inbox.take, qos=1)
    client.connect(timeout_ms=15000)
    client.disconnect()
    env.equal(client.publish(topic, b"waits", 2) is not None, True, "accepted while away")
    publisher = env.online(b"p")
    _passes(env, PATIENCE_MS, publisher)
    env.published(publisher, topic, b"away", 1)
    client.connect(timeout_ms=15000)
    ends = env.expected["sessions expire"]
    env.equal(client.session_present, not ends, "session present")
    env.until("the rest", lambda: not client.pending, client)
    env.published(client, topic, b"live", 1)
    env.arrives(inbox, b"live", client)
    wanted = [b"waits", b"live"] if ends else [b"away", b"waits", b"live"]
    env.equal(inbox.payloads(), wanted, "messages")
    client.disconnect(session_expiry=0)


def message_expires(env):
    """A message that waits for a client longer than it lasts does not come.

    Of one that lasts longer, the time that it has waited is taken off.
    """
    topic = env.name(b"short")
    inbox = env.Inbox()
    left = []

    def take(message):
        left.append(message.properties.get(EXPIRY))
        inbox.take(message)

    def member():
        client = env.client(b"c", clean_session=False)
        subscription = client.subscribe(topic, take, qos=1)
        client.connect(timeout_ms=15000)
        env.granted(subscription, client)
        return client

    member().disconnect()
    publisher = env.online(b"p")
    env.published(publisher, topic, b"short", 1, properties=Properties(expiry=1))
    env.published(publisher, topic, b"long", 1, properties=Properties(expiry=1000))
    env.published(publisher, topic, b"ever", 1)
    _passes(env, PATIENCE_MS, publisher)
    client = member()
    env.arrives(inbox, b"ever", client)
    expire = env.expected["messages expire"]
    wanted = [b"long", b"ever"] if expire else [b"short", b"long", b"ever"]
    env.equal(inbox.payloads(), wanted, "messages")
    env.equal(left[-1], None, "without an expiry")
    if expire:
        env.equal(900 < left[0] < 1000, True, f"left of 1000 s: {left[0]}")
    client.disconnect(session_expiry=0)


def victim(env):
    """A client with a will that waits, in a process of its own, which is killed."""
    client = env.client(b"v" + env.option.encode(), clean_session=False, session_expiry=1000)
    delay = 1 if env.option == "dies" else 1000
    properties = Properties(will_delay=delay, expiry=1000)
    client.set_will(env.name(b"will"), env.option.encode(), 1, False, properties)
    client.connect(timeout_ms=15000)
    env.ask("die")
    raise AssertionError("still alive")


def will_delay(env):
    """A will comes after its delay, and does not if the client is back before."""
    watcher = env.client(b"w")
    inbox = env.subscribed(watcher, env.name(b"will"), 1)
    env.ask("kill", "lasting", "victim", "returns")
    back = env.client(b"vreturns", clean_session=False, session_expiry=1000)
    back.connect(timeout_ms=15000)
    env.equal(back.session_present, True, "session present")
    env.ask("kill", "lasting", "victim", "dies")
    env.arrive(inbox, 1, watcher)
    wanted = [b"dies"] if env.expected["will delay"] else [b"returns", b"dies"]
    env.arrive(inbox, len(wanted), watcher)
    env.equal(inbox.payloads(), wanted, "wills")
    back.disconnect(session_expiry=0)
    again = env.client(b"vdies", clean_session=True)
    again.connect(timeout_ms=15000)
