"""Messages many times larger than the buffers."""

import io

BROKER = "shared"


SIZE = 9000  # bytes


class Counter:
    """A handler that finds out whether all bytes are there: of one that counts up."""

    def __init__(self):
        self.good = 0
        self.messages = []

    def take(self, message):
        if message.offset == 0:
            self.good = 0
        for i in range(len(message)):
            if message[i] == message.offset + i & 255:
                self.good += 1
        if message.last:
            self.messages.append((self.good, message.total, message.qos))


def _both_ways(env, source, size=SIZE):
    """Send what a call of `source` returns, of that size, and take it in pieces."""
    topic = env.name(b"large")
    counter = Counter()
    subscriber = env.client(b"s")
    subscription = subscriber.subscribe(topic, counter.take, qos=2, chunks=True)
    subscriber.start()
    env.granted(subscription, subscriber)
    publisher = env.online(b"p")
    env.published(publisher, topic, bytes(range(10)), 1)
    for qos in (1, 0):
        env.equal(publisher.publish_from(topic, source(), qos) is None, False, "accepted")
        env.until("the large one", lambda: not publisher.pending, publisher, subscriber)
    env.published(publisher, topic, bytes(range(20)), 1)
    env.until("all", lambda: len(counter.messages) == 4, publisher, subscriber)
    due = [env.expected["delivered"][(qos, 2)] for qos in range(2)]
    wanted = [(10, 10, due[1]), (size, size, due[1]), (size, size, due[0]), (20, 20, due[1])]
    env.equal(counter.messages, wanted, "messages")
    env.equal((publisher.error, subscriber.error), (None, None), "errors")


def _payload():
    return bytes(i & 255 for i in range(SIZE))


def from_a_buffer(env):
    """9 KB from the caller's bytes, through buffers of 512 bytes, and back in pieces."""
    _both_ways(env, _payload)


def from_a_file(env):
    """The same from what can only be read."""
    _both_ways(env, lambda: io.BytesIO(_payload()))


def skipped_where_nobody_takes_pieces(env):
    """It is acknowledged and counted, and what comes behind it is delivered."""
    topic = env.name(b"skipped")
    client = env.client(b"c")
    inbox = env.subscribed(client, topic, 1)
    client.publish_from(topic, bytes(SIZE), 1)
    env.until("PUBACK", lambda: not client.pending, client)
    env.published(client, topic, b"after", 1)
    env.arrive(inbox, 1, client)
    env.equal((inbox.payloads(), client.stats.skipped), ([b"after"], 1), "messages, skipped")
