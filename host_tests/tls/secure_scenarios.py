"""Scenarios over TLS, for both interpreters. secure_broker.py starts them."""

import gc

from flatmq import MQTTError

SIZE = 65536  # bytes of a large message
ROUNDS = 10  # reconnects
SHAKING_MS = 100  # what a poll of `turns` may wait
CONNECT_MS = 60000  # what connect() may take: much longer than it needs


def every_qos(env):
    """Published messages come back, at each QoS."""
    inbox = env.Inbox()
    topic = env.name(b"every")
    client = env.client(b"c")
    subscription = client.subscribe(topic, inbox.take, qos=2)
    client.start()
    env.granted(subscription, client)
    for qos in range(3):
        env.published(client, topic, b"qos %d" % qos, qos)
    env.arrive(inbox, 3, client)
    env.equal([m[2] for m in inbox.messages], [0, 1, 2], "QoS")
    env.equal(inbox.payloads(), [b"qos 0", b"qos 1", b"qos 2"], "payloads")
    env.equal(client.error, None, "error")
    client.disconnect()


class _Counter:
    """A handler that counts the bytes of a message in pieces that are right."""

    def __init__(self):
        self.good = self.whole = 0

    def take(self, message):
        if message.offset == 0:
            self.good = 0
        for i in range(len(message)):
            if message[i] == message.offset + i & 255:
                self.good += 1
        if message.last and self.good == message.total == SIZE:
            self.whole += 1


def _large(env, **options):
    """A client that receives large messages, its handler, their topic and a payload."""
    topic = env.name(b"large")
    counter = _Counter()
    client = env.client(b"c", **options)
    subscription = client.subscribe(topic, counter.take, qos=2, chunks=True)
    client.start()
    env.granted(subscription, client)
    payload = bytearray(SIZE)
    for i in range(SIZE):
        payload[i] = i & 255
    return client, counter, topic, payload


def large_from_the_ring(env):
    """64 KB out in one write and in again, at each QoS."""
    client, counter, topic, payload = _large(env, tx_size=SIZE + 1000)
    for qos in range(3):
        env.equal(client.publish(topic, payload, qos) is None, False, "accepted")
        env.until("large", lambda n=qos: counter.whole > n and not client.pending, client)
    env.equal(client.error, None, "error")
    client.disconnect()


def large_from_a_buffer(env):
    """64 KB out and in at QoS 0 and 1, each followed by a small message."""
    client, counter, topic, payload = _large(env)
    for qos in (0, 1):
        env.equal(client.publish_from(topic, payload, qos) is None, False, "accepted")
        client.publish(env.name(b"small"), b"behind", 1)
        env.until("large", lambda n=qos: counter.whole > n and not client.pending, client)
    env.equal(client.error, None, "error")
    client.disconnect()


def reconnects(env):
    """Again and again with one client, whose context is made once."""
    client = env.client(b"c")
    rounds = int(env.option or ROUNDS)
    for _ in range(rounds):
        client.connect(15000)
        env.published(client, env.name(b"again"), b"x", 1)
        env.equal(client.disconnect(), True, "DISCONNECT has left")
    env.equal(client.stats.connects, rounds, "connects")


def fails(env):
    """The first try fails; the kind and the text go to the test."""
    client = env.client(b"c", retry_ms=60000, retry_max_ms=60000)
    client.start()
    env.until("a failure", lambda: client.error or client.connected, client)
    error = client.error
    print("@failed", error.kind if error else "none", error.detail if error else "connected")


def connect_raises(env):
    """connect() gives up long before its time: says after how many tries, and why."""
    client = env.client(b"c", retry_ms=50, retry_max_ms=50)
    try:
        client.connect(CONNECT_MS)
        print("@raised 0 none connected")
    except MQTTError as e:
        print("@raised", client.stats.losses, e.kind, e.detail)
    client.disconnect()


def connect_after_losses(env):
    """connect() goes on after losses of which the network may be the cause."""
    client = env.client(b"c", retry_ms=1, retry_max_ms=1)
    client.connect(CONNECT_MS)
    print("@losses", client.stats.losses)
    client.disconnect()


def turns(env):
    """Print how often poll returned, and after how many ms the client was online."""
    client = env.client(b"c")
    client.start()
    began = env.ticks_ms()
    count = 0
    while not client.connected:
        client.poll(SHAKING_MS)
        count += 1
        if env.ticks_diff(env.ticks_ms(), began) > 15000:
            raise AssertionError(repr(client))
    print("@turns", count, env.ticks_diff(env.ticks_ms(), began))
    client.disconnect()


def through_cuts(env):
    """Connections are cut; the client tries until one is not."""
    client = env.client(b"c", retry_ms=1, retry_max_ms=1)
    kinds = set()
    client.publish(env.name(b"cut"), b"x", 1)
    client.start()
    began = env.ticks_ms()
    while client.pending:
        client.poll(20)
        if client.error:
            kinds.add(client.error.kind)
        if env.ticks_diff(env.ticks_ms(), began) > 90000:
            raise AssertionError(repr(client))
    print("@losses", client.stats.losses, " ".join(sorted(kinds)))
    client.disconnect()


def exactly_once(env):
    """Messages at QoS 2 over connections that are cut arrive once each, in order."""
    inbox = env.Inbox()
    topic = env.name(b"once")
    count = int(env.option)
    watcher = env.plain(b"w")
    env.granted(watcher.subscribe(topic, inbox.take, qos=2), watcher)
    client = env.client(b"c", clean_session=False, retry_ms=1, retry_max_ms=1)
    client.start()
    for i in range(count):
        env.until("room", lambda n=i: client.publish(topic, b"%d" % n, 2), client, watcher)
    env.until("all", lambda: not client.pending, client, watcher)
    env.arrive(inbox, count, watcher)
    env.equal(inbox.payloads(), [b"%d" % i for i in range(count)], "messages")
    print("@losses", client.stats.losses)
    client.disconnect()


def lets_go_of_certificates(env):
    """A client does not keep the bytes that it was given."""
    client = env.online(b"c")
    env.equal("tls" in client.options, False, "tls in the options")
    gc.collect()
    env.published(client, env.name(b"kept"), b"x", 1)
    client.disconnect()
    client.connect(15000)
    client.disconnect()
