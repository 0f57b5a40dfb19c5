"""Received messages, which are positions in the receive buffer, and the handlers that get them.

Loaded with the first subscription or message, and kept. The handlers of the last topic names are
remembered. The search starts at the last name found, so names that repeat in the same order are
found at once.
"""

# Imported builtins are found without a miss in the module.
from builtins import bytes

from . import is_name
from .port import MICROPYTHON, Shown, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client
    from .rare import reading


_NAMES = const(8)  # remembered topic names; a power of two
_LONGEST = const(48)  # bytes of the longest one, with its length in front
NEVER = b"\0\0\0"  # no PUBLISH begins like this: a topic name is never empty

several: "Any" = None  # once it is loaded,
matches: "Any" = None  # and `wild.matches`, which is loaded with the first wildcard


class Message(Shown):
    """The message passed to a handler.

    One object serves every message and is valid only until the handler returns, so copy
    whatever you keep.

    `qos` is 0 to 2, `retain` and `dup` are 0 or 1. `len(message)` is the size of the payload in
    bytes, and `message[i]` is its i-th byte. `topic` and `payload` each allocate a bytes object;
    everything else allocates nothing after its first use.

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
    id: int  # the packet identifier, at QoS 1 and 2
    properties: "Any"  # in MQTT 5: see `v5.walk.View`
    buf: bytearray  # the receive buffer
    first: int  # the first byte of the packet
    t: int  # where the length of the topic name is
    at: int  # where the payload begins,
    end: int  # and ends
    pid: int  # the packet identifier, if the message is larger than the buffer

    if TYPE_CHECKING:  # the methods that `rare.reading` adds
        is_topic = reading.is_topic
        is_payload = reading.is_payload
        text = reading.text
        json = reading.json
        number = reading.number
        copy = reading.copy
        write_to = reading.write_to

    def __init__(self, buf: bytearray, client: "Client | None" = None) -> None:
        self.buf = buf
        self.client: Any = client
        self.first = 0x30
        self.t = self.at = self.end = 0
        self.offset = 0
        self.size = 0  # of the payload in bytes, if the message is larger than the buffer
        if client is not None:
            client.names = [NEVER] * _NAMES
            client.routes = [None] * (_NAMES + 1)  # the last: of a name that is not remembered
            client.message = self  # once there was memory for it

    def __len__(self) -> int:
        return self.end - self.at

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.end - self.at:
            load("checks").index(index, self.end - self.at)
        return self.buf[self.at + index]

    def __getattr__(self, name: str) -> "Any":
        # Instead of properties: on a board a class with a property makes every assignment slower.
        if name == "payload":
            return bytes(self.buf[self.at : self.end])
        if name == "qos":
            return self.first >> 1 & 3
        if name == "retain":
            return self.first & 1
        if name == "dup":
            return self.first >> 3 & 1
        if name == "topic":
            at = self.t + 2
            return bytes(self.buf[at : at + (self.buf[at - 2] << 8 | self.buf[at - 1])])
        return load("reading").get(self, name)

    def route(self, e: int) -> int:
        """Find the handler for the topic name, which ends at `e`, and remember it.

        Returns its place in `routes` of the client, which has False there if the name is not
        valid.
        """
        global several
        c = self.client
        t = self.t
        if not is_name(c.rx, t + 2, e):
            c.routes[_NAMES] = False
            return _NAMES
        i = search(c, 0, e)
        found = None
        if i >= 0:
            found = c.subscriptions[i].handler
        if c.limit or (i >= 0 and search(c, i + 1, e) >= 0):
            if several is None:
                several = load("several").several
            found = several
        i = c.index
        c.routes[_NAMES] = found
        if e - t > _LONGEST or not c.learned:
            return _NAMES
        c.index = (i + 1) % c.learned
        if c.five and c.blocks:  # the properties that it was last seen with
            c.blocks[i][0:] = NEVER
        c.names[i][0:] = b""  # keeps its memory
        while t < e:
            c.names[i].append(c.rx[t])
            t += 1
        while i < _NAMES:  # with few names each has several places, so the next one is always near
            c.routes[i] = found
            i += c.learned
        return (c.index or c.learned) - 1


class Subscription(Shown):
    """The topic filters of one subscribe() and their handler.

    With no handler, it has the filters of one unsubscribe().

    `granted` is None until SUBACK (section 3.9). Then it has one byte for each filter: the QoS
    granted by the broker, or 0x80 if it refused. After UNSUBACK it is empty.
    """

    filters: "list[bytes]"
    names: "list[bytes]"  # the filters that topic names must match. For $share/GROUP/FILTER they
    # differ from `filters`; b"" matches no topic name and leaves the messages to on_message
    handler: "Any"
    qos: int
    chunks: bool  # the handler takes messages larger than the buffer
    granted: "bytes | None"
    asked: "list[bytes]"  # the filters of the packet, all or those that were refused
    id: int  # the packet identifier while the answer is awaited, else 0
    strikes: int  # how often the broker has closed the connection on it,
    pause: int  # ms online after which it is tried again,
    due: int  # and when that is
    identifier: int  # in MQTT 5,
    head: bytes  # and the properties of its SUBSCRIBE

    def match(self, buf: bytearray, t: int, end: int) -> bool:
        """Return whether the topic name in `buf` from `t` to `end` matches one of the filters."""
        n = len(self.names)
        while n:  # a `for` would put the frame on the heap
            n -= 1
            if end - t == len(self.names[n]) and buf.find(self.names[n], t, end) == t:
                return True
            if matches and matches(self.names[n], buf, t, end):
                return True
        return False


def search(c: "Client", index: int, e: int, chunks: bool = False) -> int:
    """Return the first subscription, from `index` on, that matches the topic name, else -1.

    The name of the message ends at `e` in the receive buffer. With `chunks`, only subscriptions
    that take messages in pieces are looked at. With `bulk`, all messages are left to `on_message`.
    """
    if c.bulk is not None:
        return -1
    while index < len(c.subscriptions):
        s = c.subscriptions[index]
        if (
            s.handler is not None
            and (s.chunks or not chunks)
            and s.match(c.rx, c.message.t + 2, e)
        ):
            return index
        index += 1
    return -1


if not MICROPYTHON:
    load("reading").install(Message)
