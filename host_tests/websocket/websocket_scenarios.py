"""Scenarios of WebSocket: large messages, and connections that end at any byte."""

import large

SIZE = 70000  # bytes, which have a length of 64 bits in a frame
BLOCK = bytes(range(256))
COUNT = 25
PAYLOADS = (b"", b"x", bytes(range(256)) * 2, b"y" * 900)


class Source:
    """A file of `SIZE` bytes that repeat BLOCK, without having them all."""

    def __init__(self):
        self._at = 0

    def seek(self, at, whence=0):
        self._at = SIZE + at if whence == 2 else at
        return self._at

    def tell(self):
        return self._at

    def readinto(self, buf):
        n = min(len(buf), SIZE - self._at)
        for i in range(n):
            buf[i] = BLOCK[self._at + i & 255]
        self._at += n
        return n


def there_and_back(env):
    """At QoS 0 and 1, in pieces both ways."""
    large._both_ways(env, Source, SIZE)


def each_message_once(env):
    """At QoS 2, there and back in order."""
    inbox = env.Inbox()
    client = env.client(b"c", clean_session=False, tx_size=1024, retry_max_ms=40, keepalive=5)
    topic = env.name(b"once")
    client.subscribe(topic, inbox.take, qos=2)
    client.start()
    for sent in range(COUNT):
        env.until("room", lambda: client.pending < 2, client)
        accepted = client.publish(topic, b"%d:" % sent + b"x" * (sent * 13), 2)
        env.equal(accepted is None, False, "accepted")
    env.arrive(inbox, COUNT, client)
    env.until("acknowledgements", lambda: not client.pending, client)
    numbers = [int(payload.split(b":")[0]) for payload in inbox.payloads()]
    env.equal(numbers, list(range(COUNT)), "messages")
    sizes = [len(payload.split(b":")[1]) for payload in inbox.payloads()]
    env.equal(sizes, [13 * n for n in range(COUNT)], "sizes")
    print("@losses", client.stats.losses)


def messages_come_back(env):
    """Each payload at QoS 1 to the server, and back."""
    inbox = env.Inbox()
    client = env.client(b"c", tx_size=2048, rx_size=1024)
    client.subscribe(b"t", inbox.take, 1)
    client.start()
    for payload in PAYLOADS:
        env.until("room", lambda: not client.pending, client)
        client.publish(b"t", payload, 1)
    env.arrive(inbox, len(PAYLOADS), client)
    env.equal(inbox.payloads(), list(PAYLOADS), "payloads")
    env.equal(client.stats.losses, 0, "losses")
    env.equal(client.disconnect(), True, "in order")
