"""Brokers that are not there yet, or no longer. Each has a broker of its own to itself."""

import errno

BROKER = "own"


def cold_start(env):
    """A client started before its broker comes online by itself when the broker comes."""
    env.ask("broker", "kill")
    inbox = env.Inbox()
    topic = env.name(b"cold")
    client = env.client(b"c")
    subscription = client.subscribe(topic, inbox.take, qos=1)
    client.start()
    # Two failed attempts, at least, so that it is the waiting that is tested.
    env.until("an attempt to fail", lambda: client.error is not None, client)
    env.equal(client.connected, False, "connected without a broker")
    identifier = client.publish(topic, b"queued", 1)
    env.equal(identifier is not None and identifier > 0, True, "accepted while offline")
    env.equal(client.pending, 1, "pending while offline")
    env.ask("broker", "restart")
    env.until("the broker", lambda: client.connected, client)
    env.granted(subscription, client)
    env.until("acknowledgement", lambda: client.pending == 0, client)
    env.published(client, topic, b"live", 1)
    env.arrives(inbox, b"live", client)
    client.disconnect()


def connect_gives_up_in_time(env):
    """connect() with nobody there raises within its time, with the reason."""
    env.ask("broker", "kill")
    client = env.client(b"c")
    try:
        client.connect(timeout_ms=1500)
    except env.MQTTError as error:
        env.equal(error.kind, "closed", "kind")
        for part in ("connect", env.host, str(env.port), str(errno.ECONNREFUSED)):
            env.equal(part in error.detail, True, part + " in " + error.detail)
    else:
        raise AssertionError("connected to nothing")
    env.equal(client.connected, False, "connected")


def subscriptions_return(env):
    """After the broker was killed and came back, the handlers get messages again, unasked."""
    topic, later = env.name(b"return"), env.name(b"return/later")
    client = env.client(b"c")
    inbox = env.subscribed(client, topic, 1)
    client.subscribe(later, inbox.take, qos=1)
    env.published(client, later, b"before", 1)
    env.arrive(inbox, 1, client)
    connects = client.stats.connects
    env.ask("broker", "kill")
    env.until("the loss", lambda: not client.connected, client)
    env.ask("broker", "restart")
    env.until("the broker", lambda: client.connected, client)
    env.equal(client.stats.connects > connects, True, "connects counted")
    # SUBSCRIBE goes out before this does, so the message must find its way back.
    env.published(client, topic, b"one", 1)
    env.published(client, later, b"two", 1)
    env.arrive(inbox, 3, client)
    env.equal(inbox.payloads(), [b"before", b"one", b"two"], "messages")
    client.disconnect()


def code_that_connects_is_let_go_of(env):
    """With `release` a steady connection holds less, and an outage is survived all the same."""
    topic = env.name(b"release")
    inbox = env.Inbox()
    client = env.client(b"c", release=True, ack_timeout=1)
    subscription = client.subscribe(topic, inbox.take, qos=1)
    client.connect(timeout_ms=15000)
    env.granted(subscription, client)
    env.until("the release", lambda: client.subs is None, client)
    env.published(client, topic, b"one", 1)
    env.arrive(inbox, 1, client)  # else a broker without a disk may have taken it along
    env.ask("broker", "kill")
    env.until("the loss", lambda: not client.connected, client)
    client.publish(topic, b"two", 1)
    env.ask("broker", "restart")
    env.until("the broker", lambda: client.connected, client)
    env.until("the release", lambda: client.subs is None, client)
    env.arrive(inbox, 2, client)
    env.equal(inbox.payloads(), [b"one", b"two"], "messages")
    client.disconnect()


def unacknowledged_publishes_arrive(env):
    """Messages sent but never acknowledged, or accepted offline, arrive after all."""
    inbox = env.Inbox()
    topic, probe = env.name(b"unacked"), env.name(b"probe")
    subscriber = env.client(b"s")
    subscriber.subscribe([topic, probe], inbox.take, qos=1)
    subscriber.connect(timeout_ms=15000)
    publisher = env.online(b"p")
    env.ask("broker", "freeze")
    for payload in (b"1", b"2"):
        env.equal(publisher.publish(topic, payload, 1) is not None, True, "accepted")
    publisher.flush()  # to a broker that will never read it
    publisher.poll()
    env.equal(publisher.pending, 2, "pending at a frozen broker")
    env.ask("broker", "kill")
    env.until("the loss", lambda: not publisher.connected, publisher)
    env.equal(publisher.publish(topic, b"3", 1) is not None, True, "accepted offline")
    env.equal(publisher.pending, 3, "pending without a broker")
    env.ask("broker", "restart")
    env.until("the loss", lambda: not subscriber.connected, subscriber)
    env.until("the broker", lambda: subscriber.connected, subscriber)
    env.published(subscriber, probe, b"probe", 1)
    env.arrive(inbox, 1, subscriber)
    env.until("all", lambda: publisher.pending == 0, publisher)
    env.arrive(inbox, 4, subscriber)
    env.equal(inbox.payloads(), [b"probe", b"1", b"2", b"3"], "messages")
    env.equal(publisher.stats.resent, 2, "resent")
    publisher.disconnect()
    subscriber.disconnect()


def lost_broker_is_noticed(env):
    """A broker that keeps the line open and says nothing is given up within its time."""
    client = env.client(b"c", keepalive=1, timeout=1)
    client.connect(timeout_ms=15000)
    env.ask("broker", "freeze")
    env.until("the loss", lambda: not client.connected, client)
    env.equal(client.error.kind, "timeout", "reason")
    env.ask("broker", "restart")
    env.until("the broker", lambda: client.connected, client)
    client.disconnect()
