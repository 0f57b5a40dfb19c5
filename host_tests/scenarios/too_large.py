"""Messages larger than the broker accepts.

mosquitto closes the connection as soon as it sees the size. All others must pass.
"""

BROKER = "limited"  # to packets of 400 bytes
VERSIONS = (4,)  # in MQTT 5 it announces the size

GIVE_UP = 3
ENDLESS = 4 << 20  # far more than the network takes before the broker has closed


class _Zeros:
    def __init__(self, size):
        self._size = size
        self._at = 0

    def seek(self, offset, whence=0):
        self._at = offset + (self._size if whence == 2 else 0)
        return self._at

    def readinto(self, buf):
        n = min(len(buf), self._size - self._at)
        self._at += n
        return n


def _online(env, reports):
    client = env.client(
        b"c", tx_size=1024, give_up=GIVE_UP, on_dropped=reports.take, clean_session=False
    )
    inbox = env.subscribed(client, env.name(b"good"), 2)
    return client, inbox


def _ends(env, client, inbox, wanted):
    """The client goes on: what it accepted arrives, and one more."""
    env.until("the rest", lambda: client.pending == 0, client)
    env.until("the broker", lambda: client.connected, client)
    env.published(client, env.name(b"good"), b"end", 1)
    env.arrives(inbox, b"end", client)
    for payload in wanted:
        env.equal(payload in inbox.payloads(), True, "arrived: " + repr(payload))
    client.disconnect()
    # A clean session with that identifier ends the kept one.
    env.online(b"c").disconnect()


def _from_a_source(env, qos):
    reports = env.Reports()
    client, inbox = _online(env, reports)
    topic, large = env.name(b"good"), env.name(b"large")
    env.published(client, topic, b"before", 1)
    identifier = client.publish_from(large, _Zeros(ENDLESS), qos)
    env.equal(identifier is None, False, "accepted")
    client.publish(topic, b"after", 1)
    env.until("the rest", lambda: client.pending == 0, client)
    env.dropped(client, reports, [(identifier, large)])
    losses = client.stats.losses
    env.equal(losses in (GIVE_UP, GIVE_UP + 1), True, f"{losses} tries")
    # The next one has the place of the one that was set aside.
    env.equal(client.publish_from(topic, b"large enough", 1) is None, False, "accepted")
    _ends(env, client, inbox, [b"before", b"after", b"large enough"])


def from_a_source_at_qos_0(env):
    """At QoS 0 such a message was never sent whole, and begins again on every connection."""
    _from_a_source(env, 0)


def from_a_source_at_qos_1(env):
    """At QoS 1 it waits for PUBACK."""
    _from_a_source(env, 1)


def a_source_set_aside_by_hand(env):
    """`drop` takes its packet identifier, like that of any other message."""
    reports = env.Reports()
    client = env.client(b"h", give_up=0, on_dropped=reports.take)
    identifier = client.publish_from(env.name(b"large"), _Zeros(ENDLESS), 1)
    client.start()
    env.until("losses", lambda: client.stats.losses >= 2, client)
    env.equal(client.drop(identifier), True, "drop")
    env.equal(client.pending, 0, "pending")
    env.until("the broker", lambda: client.connected, client)
    env.published(client, env.name(b"good"), b"end", 1)
