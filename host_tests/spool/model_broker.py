"""A broker inside the interpreter that remembers a client's session over its reboots.

It is the link of a client too. Written from the standard and apart from flatmq. It answers one
packet for each read, so that many exchanges are under way at a time. The scripted broker of
`brokers` cannot stand in for it: MicroPython has neither its modules nor the heap for them.
"""

RECEIVE_MAXIMUM = 3


def _packet(first, body):
    n = len(body)
    assert n < 16384
    return bytes((first, n) if n < 128 else (first, n & 127 | 128, n >> 7)) + body


class Broker:
    """`taken` is what it got, (topic, QoS, payload) in order; `send` has it publish at QoS 2.
    `complaints` are the rules that the client broke. With `version` 5 it is for MQTT 5: it takes
    RECEIVE_MAXIMUM messages at a time, and its own carry a subscription identifier.

    `up` False: no connection comes about, and the one there is ends. `acks` False: it keeps its
    acknowledgements back, and does not get the client's. It closes the connection on a PUBLISH to
    the topic `forbidden`, `closed` times so far; with `refuses` it answers that with reason code
    0x87 instead, `refused` times so far.
    """

    forbidden = b""
    refuses = False

    def __init__(self, version=4):
        self.v5 = version == 5
        self.complaints = []
        self.refused = 0
        self._identifier = b"\0"  # the properties of SUBSCRIBE
        self.taken = []
        self.known = False  # there is a session
        self.unreleased = set()  # QoS 2 packet identifiers received
        self.outgoing = []  # [packet identifier, payload, past PUBREC]
        self._next_id = 0
        self.now = 0
        self.closed = 0
        self.plug()

    def plug(self):
        """The client has rebooted: its connection is gone."""
        self.address = None
        self.up = True
        self.acks = True
        self._open = self._hung_up = False
        self._in = b""
        self._out = []
        self._rest = b""  # of a packet that one read did not take
        self._sent_up_to = 0
        self._flying = []  # packet identifiers that the client uses for messages

    def forget(self):
        self.known = False
        self.unreleased = set()

    def send(self, payload):
        """Publish at QoS 2; identifiers are used again soon. The spool uses the same."""
        in_use = [m[0][1] for m in self.outgoing]
        while True:
            self._next_id = self._next_id % 5 + 1
            if self._next_id not in in_use:
                break
        self.outgoing.append([bytes((0x82, self._next_id)), payload, False])

    def ticks_ms(self):
        return self.now

    # As a link

    def resolve(self):
        self.address = True

    def connect(self):
        if not self.up:
            raise OSError(111, "refused")
        self._open = True
        self._hung_up = False
        self._in = b""
        self._out = []
        self._rest = b""
        self._flying = []
        self._sent_up_to = len(self.outgoing)

    def stream(self):
        return self

    def wait(self, ms, out):
        self.now = self.now + ms & 0x3FFFFFFF

    def close(self):
        self._open = False

    # As a stream

    def readinto(self, into):
        if not self.up or self._hung_up:
            return 0
        if self._rest:
            return self._give(into)
        if self.known:
            while self._sent_up_to < len(self.outgoing) and len(self._out) < 4:
                self._publish(self.outgoing[self._sent_up_to], 0)
                self._sent_up_to += 1
        for i, p in enumerate(self._out):
            if self.acks or p[0] & 0xF0 not in (0x40, 0x50, 0x70):
                self._rest = self._out.pop(i)
                self._settled(self._rest)
                return self._give(into)
        return None

    def _settled(self, packet):
        """Have the client use an identifier no longer that this answer settles."""
        kind = packet[0] & 0xF0
        refused = len(packet) > 4 and packet[4] >= 0x80
        if kind in (0x40, 0x70) or (kind == 0x50 and refused):
            pid = packet[2:4]
            if pid in self._flying:
                self._flying.remove(pid)

    def _give(self, into):
        n = min(len(into), len(self._rest))
        into[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def write(self, buf, at, n):
        if not self.up or self._hung_up:
            raise OSError(104, "reset")
        self._in += bytes(buf[at : at + n])
        while len(self._in) > 1 and not self._hung_up:
            length, size = self._in[1], 2
            if length > 127:
                length = length & 127 | self._in[2] << 7
                size = 3
            if len(self._in) < size + length:
                break
            self._on_packet(self._in[0], self._in[size : size + length])
            self._in = self._in[size + length :]
        return n

    def _publish(self, message, dup):
        number, payload, released = message
        if released:
            self._out.append(_packet(0x62, number))
        else:
            head = b"\0\x02in" + number
            if self.v5:
                head += self._identifier
            self._out.append(_packet(0x34 | dup, head + payload))

    def _on_packet(self, first, body):
        kind = first >> 4
        if not self.acks and kind in (5, 7):  # lost on the way
            return
        if kind == 1:
            version = body[6]
            if version != (5 if self.v5 else 4):
                self.complaints.append(f"CONNECT at level {version}")
            more = b"\x03\x21\0" + bytes((RECEIVE_MAXIMUM,)) if self.v5 else b""
            self._out.append(_packet(0x20, bytes((self.known, 0)) + more))
            self.known = True
            for message in self.outgoing:
                self._publish(message, 8)
            self._sent_up_to = len(self.outgoing)
        elif kind == 3:
            self._on_publish(first, body)
        elif kind == 5:
            for m in self.outgoing:
                if m[0] == body[:2]:
                    m[2] = True
            self._out.append(_packet(0x62, body))
        elif kind == 6:
            known = bytes(body) in self.unreleased
            self.unreleased.discard(bytes(body))
            # In MQTT 5 it says that it does not know the identifier.
            self._out.append(_packet(0x70, body if known or not self.v5 else body + b"\x92"))
        elif kind == 7:
            done = [m for m in self.outgoing if m[0] == body[:2]]
            for m in done:
                at = self.outgoing.index(m)
                self.outgoing.pop(at)
                self._sent_up_to -= at < self._sent_up_to
        elif kind == 8:
            at, granted = 2, b""
            if self.v5:
                at, granted = 3 + body[2], b"\0"
                self._identifier = body[2:at]
            while at < len(body):
                at += 3 + (body[at] << 8 | body[at + 1])
                granted += bytes((body[at - 1] & 3,))
            self._out.append(_packet(0x90, body[:2] + granted))
        elif kind == 12:
            self._out.append(_packet(0xD0, b""))
        else:
            raise AssertionError(first)

    def _on_publish(self, first, body):
        n = body[0] << 8 | body[1]
        topic = body[2 : 2 + n]
        pid = bytes(body[2 + n : 4 + n])
        payload = body[4 + n :]
        if self.v5:
            if payload[0]:
                self.complaints.append("properties of a record")
            payload = payload[1:]
            if pid not in self._flying:
                self._flying.append(pid)
            if len(self._flying) > RECEIVE_MAXIMUM:
                self.complaints.append(f"{len(self._flying)} messages of {RECEIVE_MAXIMUM}")
        if topic == self.forbidden and self.refuses:
            self.refused += 1
            self._out.append(_packet(0x40 if first & 6 == 2 else 0x50, pid + b"\x87"))
        elif topic == self.forbidden:
            self._hung_up = True
            self.closed += 1
        elif first & 6 == 2:
            self.taken.append((topic, 1, payload))
            self._out.append(_packet(0x40, pid))
        else:
            if pid not in self.unreleased:
                self.unreleased.add(pid)
                self.taken.append((topic, 2, payload))
            self._out.append(_packet(0x50, pid))
