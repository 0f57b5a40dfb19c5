"""Scenarios over TLS, for both interpreters. secure_broker.py starts them."""

import gc

from large import Counter

from flatmq import MQTTError

SIZE = 65536  # bytes of a large message
ROUNDS = 10  # reconnects
SHAKING_MS = 100  # what a poll of `turns` may wait
CONNECT_MS = 60000  # what connect() may take: much longer than it needs


def large(env):
    """64 KB out and in, in one write at each QoS, then from a buffer; a small one follows each."""
    topic = env.name(b"large")
    payload = bytearray(SIZE)
    for i in range(SIZE):
        payload[i] = i & 255
    counter = Counter()
    client = env.client(b"c", tx_size=SIZE + 1000)
    subscription = client.subscribe(topic, counter.take, qos=2, chunks=True)
    client.start()
    env.granted(subscription, client)
    for send, qos in (
        (client.publish, 0),
        (client.publish, 1),
        (client.publish, 2),
        (client.publish_from, 0),
        (client.publish_from, 1),
    ):
        came = len(counter.messages)
        env.equal(send(topic, payload, qos) is None, False, "accepted")
        client.publish(env.name(b"small"), b"behind", 1)
        env.until("large", lambda n=came: len(counter.messages) > n and not client.pending, client)
    env.equal(counter.messages, [(SIZE, SIZE, qos) for qos in (0, 1, 2, 0, 1)], "messages")
    env.equal(client.error, None, "error")


def reconnects(env):
    """Again and again with one client, which makes its context once and keeps no certificate."""
    client = env.client(b"c")
    env.equal("tls" in getattr(client, "options", {}), False, "tls in the options")
    rounds = int(env.option or ROUNDS)
    for _ in range(rounds):
        client.connect(15000)
        gc.collect()
        env.published(client, env.name(b"again"), b"x", 1)
        env.equal(client.disconnect(), True, "DISCONNECT has left")
    env.equal(client.stats.connects, rounds, "connects")


def connect_raises(env):
    """connect() gives up long before its time: says after how many tries, and why."""
    client = env.client(b"c", retry_ms=50, retry_max_ms=50)
    try:
        client.connect(CONNECT_MS)
        print("@raised 0 none connected")
    except MQTTError as e:
        print("@raised", client.stats.losses, e.kind, e.detail)


def first_error(env):
    """The first error of a client that waits for a second. The option may be "websocket"."""
    env.mask = "random" if env.option == "websocket" else None
    client = env.client(b"c", timeout=1)
    client.start()
    while not client.error:
        client.poll(SHAKING_MS)
    print("@error", client.error.kind, client.error.detail)


def connect_after_losses(env):
    """connect() goes on after losses of which the network may be the cause."""
    client = env.client(b"c", retry_ms=1, retry_max_ms=1)
    client.connect(CONNECT_MS)
    print("@losses", client.stats.losses)


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
