"""A received message, stored as positions in the receive buffer."""

# An imported builtin is found without a miss in the module.
from builtins import len

from .port import MICROPYTHON, Shown


class Message(Shown):
    """The message passed to a handler.

    One object serves every message and is valid only until the handler returns, so copy
    whatever you keep.

    `qos` is 0 to 2, `retain` and `dup` are 0 or 1. `len(message)` is the size of the payload in
    bytes, and `message[i]` is its i-th byte. `topic` and `payload` each allocate a bytes object;
    everything else allocates nothing.

    A handler that was subscribed with `chunks` gets a message larger than `rx_size` in pieces,
    one call per piece, each with the payload of that piece. `offset` is the position of the piece
    in the whole payload; 0 starts a new message. If the connection is lost in the middle, the
    piece marked `last` never comes; at QoS 1 and 2 the message is then delivered from its start.
    """

    qos: int
    retain: int
    dup: int
    topic: bytes  # the topic name; allocates
    payload: bytes  # allocates
    total: int  # the size of the whole payload in bytes, even if this is one piece of it
    last: bool  # the payload ends here
    # The properties of an MQTT 5 message. Importing the type would cost a board more than it is
    # worth.
    properties: "Carried"  # type: ignore[name-defined]  # noqa: F821

    def __init__(self, buf: bytearray) -> None:
        self.buf = buf
        self.first = 0x30  # the first byte of the packet; the next three are decoded from it
        self.qos = self.retain = self.dup = 0
        self.id = 0  # the packet identifier, at QoS 1 and 2
        self.topic_at = self.topic_end = 0
        self.at = self.end = 0
        self.offset = 0
        self.size = 0  # of the payload in bytes, if the message is larger than the buffer

    def set_flags(self, first: int) -> None:
        """Set QoS, RETAIN and DUP from the first byte of a PUBLISH."""
        self.first = first
        self.qos = first >> 1 & 3
        self.retain = first & 1
        self.dup = first >> 3 & 1

    def __getattr__(self, name):
        # Instead of properties: on a board a class with a property makes every assignment slower.
        if name == "topic":
            return bytes(self.buf[self.topic_at : self.topic_end])
        if name == "payload":
            return bytes(self.buf[self.at : self.end])
        if name == "total":
            return self.size or self.end - self.at
        if name == "last":
            return self.size == 0 or self.offset + self.end - self.at == self.size
        raise AttributeError(name)

    def __len__(self) -> int:
        return self.end - self.at

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.end - self.at:
            raise IndexError(f"payload: index {i} of {self.end - self.at} bytes")
        return self.buf[self.at + i]

    def is_topic(self, name: bytes) -> bool:
        """Return whether the topic name is `name`."""
        at = self.topic_at
        return self.topic_end - at == len(name) and self.buf.find(name, at, self.topic_end) == at

    def is_payload(self, value: bytes) -> bool:
        """Return whether the payload is `value`."""
        at = self.at
        return self.end - at == len(value) and self.buf.find(value, at, self.end) == at

    def number(self) -> "int | None":
        """Return the payload as an integer: decimal digits with an optional sign, else None.
        Values of more than 30 bits allocate on a 32-bit board."""
        at = self.at
        minus = at < self.end and self.buf[at] == 45
        if minus or (at < self.end and self.buf[at] == 43):
            at += 1
        value = None
        while at < self.end:
            c = self.buf[at] - 48
            if not 0 <= c <= 9:
                return None
            value = (value or 0) * 10 + c
            at += 1
        return -value if minus and value else value

    def copy(self, into: "bytearray | memoryview") -> int:
        """Copy the payload to the start of `into`, and return its size in bytes.

        ValueError if `into` is too small.
        """
        n = self.end - self.at
        if n > len(into):
            raise ValueError(f"into must be at least {n} bytes, not {len(into)}")
        for i in range(n):
            into[i] = self.buf[self.at + i]
        return n

    def write_to(self, stream) -> "int | None":
        """Write the payload to a file or another binary stream.

        Returns what its `write` returns: for a file, the number of bytes.
        """
        if MICROPYTHON:
            return stream.write(self.buf, self.at, self.end - self.at)
        return stream.write(memoryview(self.buf)[self.at : self.end])


if not MICROPYTHON:
    from .port_cpython import properties

    properties(Message, "topic", "payload", "total", "last")
