"""Scenarios with the clients of docs/clouds.md, for both interpreters. services.py starts them."""

from flatmq import sas

HOURS = 7200  # s, longer than a token is valid


def session(env):
    """Messages go out and in at each QoS that the client has. `option`: the highest one."""
    client = env.block()["client"]
    most = int(env.option)
    inbox = env.Inbox()
    topic = b"dev/pico-1/telemetry"
    subscription = client.subscribe(topic, inbox.take, qos=most)
    client.start()
    env.equal(env.granted(subscription, client), bytes((most,)), "granted")
    for qos in range(most + 1):
        env.published(client, topic, b"at %d" % qos, qos)
    env.arrive(inbox, most + 1, client)
    env.equal(inbox.payloads(), [b"at %d" % qos for qos in range(most + 1)], "payloads")
    if most < 2:
        for call in (
            lambda: client.publish(topic, b"x", 2),
            lambda: client.subscribe(b"dev/pico-1/cmd", inbox.take, qos=2),
        ):
            print("@refused", env.raises(ValueError, call))
    env.equal(client.error, None, "error")
    client.disconnect()


def not_mine(env):
    """Publish to a topic of another board, then to one of its own."""
    client = env.block()["client"]
    client.start()
    env.published(client, b"dev/pico-2/telemetry", b"not mine", 1)
    env.published(client, b"dev/pico-1/telemetry", b"mine", 1)
    client.disconnect()


def fails(env):
    """The first try fails; the kind and the text go to the test."""
    client = env.block()["client"]
    client.start()
    env.until("a failure", lambda: client.error or client.connected, client)
    error = client.error
    print("@failed", error.kind if error else "none", error.detail if error else "connected")


class _Clock:
    def __init__(self):
        import time

        self._time = time
        self.late = 0  # s that it is ahead
        self.unset = False

    def gmtime(self):
        if self.unset:
            return (2021, 1, 1, 0, 0, 1, 4, 1)
        return self._time.gmtime(self._time.time() + self.late)


def tokens(env):
    """A token that expires ends the connection; the next one has a new token."""
    clock = sas.time = _Clock()
    names = env.block()
    client = names["client"]
    inbox = env.Inbox()
    subscription = client.subscribe(names["commands"], inbox.take, qos=1)
    clock.unset = True
    client.start()
    env.until("no token", lambda: client.error, client)
    print("@unset", client.error.kind, client.error.detail)
    clock.unset = False
    env.granted(subscription, client)
    env.published(client, names["events"], b"before", 1)
    env.ask("send", "one")
    env.arrives(inbox, b"one", client)
    env.ask("advance", str(HOURS))
    env.until("the expiry", lambda: not client.connected, client)
    print("@expired", client.error.kind)
    # The hub's clock is ahead of this one, as if the token had been kept: it is refused.
    env.until("the refusal", lambda: client.error.kind == "refused", client)
    print("@refused", client.error.code)
    clock.late = HOURS
    env.until("a new token", lambda: client.connected, client)
    env.granted(subscription, client)
    env.published(client, names["events"], b"after", 1)
    env.ask("send", "two")
    env.arrives(inbox, b"two", client)
    client.disconnect()
