"""A received message, stored as positions in the receive buffer."""

from ..load import load
from ..port import MICROPYTHON, Shown, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client
    from ..rare import reading


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
    buf: bytearray  # the receive buffer
    first: int  # the first byte of the packet
    t: int  # where the length of the topic name is
    at: int  # where the payload begins,
    end: int  # and ends

    if TYPE_CHECKING:  # the methods that `rare.reading` adds
        is_topic = reading.is_topic
        is_payload = reading.is_payload
        number = reading.number
        copy = reading.copy
        write_to = reading.write_to

    def __init__(self, buf: bytearray, client: "Client | None" = None) -> None:
        self.buf = buf
        self.client: Any = client
        self.first = 0x30
        self.t = self.at = self.end = 0
        self.offset = 0
        self.size = 0  # of the payload in bytes, if the message is larger than the buffer; then
        self.pid = 0  # this is the packet identifier

    def __len__(self) -> int:
        return self.end - self.at

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.end - self.at:
            raise IndexError(f"payload: index {i} of {self.end - self.at} bytes")
        return self.buf[self.at + i]

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
        return load("reading").more(self, name)


if not MICROPYTHON:
    load("reading").install(Message)
