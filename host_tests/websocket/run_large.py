"""Messages of 70,000 bytes, which have a length of 64 bits in a WebSocket frame."""

SIZE = 70000
BLOCK = bytes(range(256))


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
    got = []
    good = 0

    def take(message):
        nonlocal good
        if message.offset == 0:
            good = 0
        for i in range(len(message)):
            good += message[i] == (message.offset + i & 255)
        if message.last:
            got.append((good, message.total, message.qos))

    topic = env.name(b"large")
    subscriber = env.client(b"s")
    subscription = subscriber.subscribe(topic, take, qos=2, chunks=True)
    subscriber.start()
    env.granted(subscription, subscriber)
    publisher = env.online(b"p")
    for qos in (1, 0):
        env.equal(publisher.publish_from(topic, Source(), qos) is None, False, "accepted")
        env.until("the large one", lambda: not publisher.pending, publisher, subscriber)
    env.published(publisher, topic, BLOCK[:20], 2)
    env.until("all", lambda: len(got) == 3, publisher, subscriber)
    env.equal(got, [(SIZE, SIZE, 1), (SIZE, SIZE, 0), (20, 20, 2)], "messages")
    env.equal((publisher.error, subscriber.error), (None, None), "errors")
    publisher.disconnect()
    subscriber.disconnect()
