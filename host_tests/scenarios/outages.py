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
