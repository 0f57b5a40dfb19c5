"""A subscription: topic filters and the handler of their messages."""

from .port import const
from .topic import matches

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .message import Message

_len = len


class Subscription:
    """Topic filters that were subscribed to in one call, and their handler; or, without one,
    filters that were unsubscribed from.

    `granted` is None until SUBACK (section 3.9). Then it has one byte for each filter: the QoS
    that the broker grants, or 0x80 if it refuses. After UNSUBACK it is empty.
    """

    def __init__(self, filters: "list[bytes]", handler: "Any", qos: int, chunks: bool) -> None:
        self.handler = handler
        self.qos = qos
        self.chunks = chunks  # whether the handler takes messages larger than the buffer
        self.granted: bytes | None = None
        self.filters = self.names = filters  # `names`: what topic names must match
        self.asked = filters  # as they were in the packet
        self.id = 0  # the packet identifier while it waits for its answer

    def takes(self, m: "Message") -> bool:
        """Whether the topic name of a message matches one of the filters. Allocates nothing."""
        i = 0
        while i < _len(self.names):  # a `for` would put the frame on the heap
            if matches(self.names[i], m.buf, m.topic_at, m.topic_end):
                return True
            i += 1
        return False

    def narrow(self, gone: "list[bytes]") -> bool:
        """Give up some filters. Returns whether there are any left."""
        left = [i for i, f in enumerate(self.filters) if f not in gone]
        if self.granted:
            self.granted = bytes([self.granted[i] for i in left])
        self.filters = [self.filters[i] for i in left]
        self.names = [self.names[i] for i in left]
        return bool(left)

    def __repr__(self) -> str:
        return f"<Subscription {self.filters} granted={self.granted!r}>"
