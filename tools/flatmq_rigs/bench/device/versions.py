"""The interpreter's work at MQTT 3.1.1 and at MQTT 5: the same operations over a link in memory.

A class below has one method per operation. It is given a clock and returns what passed, for as
many messages as OPERATIONS says.
"""

from work import BURST, TURNS, Flatmq, count

import packets
from packets import PAYLOAD, TOPICS

# Operation -> messages per call. What only MQTT 5 has is beside what stands in for it at 3.1.1.
OPERATIONS = (
    ("publish", TURNS),
    ("publish_burst", TURNS * BURST),
    ("publish_topics", TURNS * 2),
    ("publish_properties", TURNS),
    ("publish_mixed", TURNS * 2),
    ("publish_alias", TURNS),
    ("trip", 1),
    ("trip_burst", BURST),
    ("receive", 1),
    ("receive_burst", BURST),
    ("receive_tagged", 1),
    ("receive_tagged_burst", BURST),
    ("receive_properties", 1),
    ("receive1", 1),
    ("receive1_tagged", 1),
    ("idle", TURNS),
    ("ping", 1),
    ("mix_plus", BURST),
    ("mix_eight", BURST),
    ("mix_random", BURST),
)


class Old(Flatmq):
    """A client for 3.1.1."""

    name = "4"
    twice = Flatmq.twice + ("receive1", "receive1_tagged")  # noqa: RUF005 - as MicroPython has it
    version = 4
    none = b""
    tag = b""  # properties with a subscription identifier
    some = b""  # and with three others

    def __init__(self):
        super().__init__()
        self.acknowledged, self.client1, _ = self.online("one", count, qos=1)
        self.tagged = packets.publish(TOPICS[0], PAYLOAD, 0, 0, self.tag)
        self.tagged_burst = self.tagged * BURST
        self.carrying = packets.publish(TOPICS[0], PAYLOAD, 0, 0, self.some)
        self.one1 = packets.publish(TOPICS[0], PAYLOAD, 1, 7, self.none)
        self.tagged1 = packets.publish(TOPICS[0], PAYLOAD, 1, 7, self.tag)

    def publish_topics(self, now):
        c = self.client
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD)
            c.flush()
            c.publish(TOPICS[1], PAYLOAD)
            c.flush()
        t = now() - t
        self.take(2 * TURNS * self.size)
        return t

    def publish_properties(self, now):
        return self.publish(now)

    def publish_mixed(self, now):
        return self.publish_topics(now)

    def publish_alias(self, now):
        return self.publish(now)

    def receive_tagged(self, now):
        return self.get(now, self.client, self.stream, self.tagged, 1)

    def receive_tagged_burst(self, now):
        return self.get(now, self.client, self.stream, self.tagged_burst, BURST)

    def receive_properties(self, now):
        return self.get(now, self.client, self.stream, self.carrying, 1)

    def receive1(self, now):
        return self.answered(now, self.one1)

    def receive1_tagged(self, now):
        return self.answered(now, self.tagged1)

    def answered(self, now, packet):
        c = self.client1
        s = self.acknowledged
        t = self.get(now, c, s, packet, 1)
        u = now()
        c.flush()
        u = now() - u
        if s.taken() != b"\x40\x02\0\7":
            raise RuntimeError("not acknowledged")
        return t + u


class New(Old):
    """A client for MQTT 5. Its subscription has the identifier 1."""

    name = "5"
    version = 5
    none = b"\0"
    tag = b"\2\x0b\1"
    some = b"\x1c\x03\0\x0atext/plain\x02\0\0\0\x3c\x26\0\1k\0\4some"
    size = Flatmq.size + 1

    def __init__(self):
        super().__init__()
        from flatmq.properties import Properties

        self.one_block = Properties(content_type=b"text/plain")
        self.other_block = Properties(expiry=60)
        self.alias = self.client.alias(TOPICS[0])
        self.publish_alias(lambda: 0)

    def publish_properties(self, now):
        c = self.client
        p = self.one_block
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD, properties=p)
            c.flush()
        t = now() - t
        self.take(TURNS * (self.size + 13))
        return t

    def publish_mixed(self, now):
        c = self.client
        p = self.one_block
        q = self.other_block
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD, properties=p)
            c.flush()
            c.publish(TOPICS[1], PAYLOAD, properties=q)
            c.flush()
        t = now() - t
        self.take(TURNS * (2 * self.size + 18))
        return t

    def publish_alias(self, now):
        c = self.client
        a = self.alias
        t = now()
        for _ in range(TURNS):
            a.publish(PAYLOAD)
            c.flush()
        t = now() - t
        if not self.stream.taken().endswith(b"\0\0\3\x23\0\1" + PAYLOAD):
            raise RuntimeError("not written")
        return t
