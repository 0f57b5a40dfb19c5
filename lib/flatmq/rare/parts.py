"""Send a message larger than the queue. Its payload stays with the application.

It leaves in parts. Loaded with the first such message, and kept.
"""

from .. import MQTTError, is_name, wire
from ..port import const, load
from ..wire import field, number, put_length

wire.held = True

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client

_PART = const(512)  # bytes handed to the network at once; with more, a board would block
_BURST = const(8)  # parts per step, so that a poll does other things too
_BEHIND = const(2)  # closes in a row after which the others go first


def publish_from(
    self: "Client",
    topic: "bytes | str",
    source: "Any",
    qos: int = 0,
    retain: bool = False,
) -> "int | None":
    """Accept a message of up to 268 MB, and send its payload in parts straight from `source`.

    `source` is a buffer of bytes, or a file opened in binary mode, which is sent whole. It must
    not change until `pending` is 0. At QoS 1 it is sent again from its start after a lost
    connection.

    Returns its packet identifier at QoS 1, 0 at QoS 0, and None if anything is pending or the
    client disconnects: only one such message is accepted at a time, and only once everything
    before it is settled. Messages published after it leave after it. ValueError for a bad topic
    name, and for QoS 2; TypeError for items of several bytes. If a file ends early or raises, the
    connection ends with "resource", and the message is set aside; after MemoryError it stays.
    """
    if not self.large:
        self.large = Parts(self)
    if retain != 0 and retain != 1:
        load("checks").bool("retain", retain)
    head = 0x30 | retain | number("qos", qos, 0, min(self.max_qos, 1)) << 1
    return self.large.publish(head, field("topic name", topic, is_name), source)


class Parts:
    """The large message of a `client`, one at a time.

    `waits` is 1 until the message is written, or at QoS 1 acknowledged. `sending` is True until
    it is written. `began` is True while only a part of the packet has left, so that nothing else
    may leave. `next` puts the bytes to be written next into `data`, from `at` on.

    After two closes in a row on this message, those in the queue go before it on every other
    connection: `behind` is True until they are settled. After `give_up` closes it is set aside,
    but only once the broker has taken others meanwhile: see `alone`.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.waits = 0
        self.sending = self.began = self.behind = False
        self.pid = 0
        self.data: Any = b""
        self.at = 0
        self.error: Any = None  # MQTTError, if the source cannot be read
        self._topic = b""
        self.head = bytearray()  # the packet up to its payload
        self._payload: Any = None  # a memoryview: the payload, or what was last read of the file
        self._source: Any = None  # the file that the payload comes from
        self._scratch: Any = None  # the buffer to read files into, claimed with the first file
        self.size = self._done = 0  # bytes of the payload, and how many were handed over
        self._burst = 0
        self.trusted = False  # the session is the one of the connection before
        self._tried = False  # begun on an earlier connection, so that DUP is due
        self._strikes = 0  # times in a row that the peer closed the connection on it
        self.ahead = 0  # messages at QoS 1 and 2 that go before it now
        self._proof = False  # the broker has taken others since the first of these closes

    def publish(self, head: int, topic: bytes, source: "Any") -> "int | None":
        """Accept a PUBLISH whose first byte is `head`: see `Client.publish_from`."""
        c = self._client
        # One that was dropped while it was being sent is in the way until the connection ends, and
        # messages that were dropped in flight may take up all places.
        # Nothing may follow DISCONNECT.
        busy = c.pending or self.sending or c.leaving is not None
        if busy or (head & 6 and c.inflight < 1):
            return None
        block = c.block if c.five else b""
        self._source = None
        if hasattr(source, "readinto"):
            self.size = source.seek(0, 2)
            self._source = source
            if self._scratch is None:
                self._scratch = memoryview(bytearray(_PART))
            self._payload = self._scratch
        else:
            try:
                self._payload = memoryview(source.encode() if isinstance(source, str) else source)
            except TypeError:
                kind = type(source).__name__
                raise TypeError(f"source must be a buffer, str or a file, not {kind}") from None
            n = len(bytes(self._payload[:1]))
            if n > 1:
                raise TypeError(f"source must have items of 1 byte, not {n}")
            self.size = len(self._payload)
        n = len(topic) + len(block) + self.size + (4 if head & 6 else 2)
        number("size of the packet", n, 0, 268435455)
        if c.five and c.offers[2:4] != [1, 0]:  # of RETAIN and size: see `v5.server`
            c.allow(n, head & 1)
        self.pid = 0
        if head & 6:
            self.pid = c.last_id + 1 & 65535 or 1
            if self.pid == c.stop:
                self.pid = load("strays").next_id(c)
            c.last_id = self.pid
        packet = bytearray((head,))
        put_length(packet, n)
        packet.extend(bytes((len(topic) >> 8, len(topic) & 255)) + topic)
        if self.pid:
            packet.extend(bytes((self.pid >> 8, self.pid & 255)))
        packet.extend(block)
        self.head = packet
        self._topic = topic
        self._tried = False
        self._strikes = self._burst = 0
        self._proof = False
        self.waits = 1
        self.sending = True
        c.pending += 1
        if c.five:
            c.five.allot(c)
        return self.pid

    def next(self) -> int:
        """Return the size of the next span of bytes.

        0: enough for now, everything is written, or the source has failed.
        """
        c = self._client
        self.error = None
        if not self.waits:
            self.error = MQTTError("resource", "dropped while it was being sent")
            return 0
        if not self.began:
            self.began = True
            self._done = self.at = 0
            self.data = self.head
            if self._tried and self.pid:
                c.stats.resent += 1
                if self.trusted:
                    self.head[0] |= 8  # DUP
                else:
                    c.stats.renewed += 1
                    self.head[0] &= 0xF7
            self._tried = True
            return len(self.head)
        if self._done == self.size:
            self.began = self.sending = False
            if not self.pid:
                self._release()
            return 0
        self._burst += 1
        if self._burst > _BURST:
            self._burst = 0
            return 0
        n = min(_PART, self.size - self._done)
        self.at = self._done
        if self._source is not None:
            self.at = 0
            n = min(n, self._read())
        self.data = self._payload
        self._done += n
        return n

    def _read(self):
        """Return how much could be read of the source. If nothing, the message is given up."""
        try:
            if not self._done:
                self._source.seek(0)
            n = self._source.readinto(self._payload) or 0
            if n > 0:
                return n
        except MemoryError:  # the connection ends, and it is sent again
            raise
        except Exception:  # "as e" would put the frame on the heap
            pass
        return self._read_again()

    def _read_again(self):
        why = "ended"
        try:
            self._source.seek(self._done)
            n = self._source.readinto(self._payload) or 0
            if n > 0:
                return n
        except MemoryError:
            raise
        except Exception as e:
            why = repr(e)
        text = f"source: {why} after {self._done} of {self.size} bytes"
        self.error = MQTTError("resource", text)
        self.set_aside(text)
        return 0

    def _release(self):
        self.pid = self.waits = 0
        self._client.pending -= 1
        self.sending = self.behind = False
        self._source = self._payload = None
        if self._client.five:
            self._client.five.allot(self._client)

    def settle(self, pid: int) -> bool:
        """Handle a PUBACK. Returns False if nothing waits for it."""
        if not self.waits or pid != self.pid or self.sending:
            return False
        self._release()
        return True

    def set_aside(self, reason: str) -> None:
        """Give up the message. A part of it may have left already."""
        c = self._client
        pid = self.pid
        if c.five and pid and (self.began or not self.sending):
            c.five.owe(c, pid)  # it takes up a place until the broker has answered
        self._release()
        self.sending = self.began  # until the connection is closed: a part of the packet has left
        c.stats.dropped += 1
        if c.on_dropped:
            c.on_dropped(pid, self._topic, reason)

    def resume(self) -> None:
        """Begin to send it: those that went before it are settled."""
        self.behind = False
        self.sending = True
        if self.ahead > 0:
            self._proof = True

    def lost(self, closed: bool, flight: "int | None") -> None:
        """Handle the end of a connection: the message is sent again from its start.

        closed   by the peer
        flight   the message of the queue that was in flight: see `dial.mark`
        """
        c = self._client
        in_flight = self.began or not (self.sending or self.behind)
        self.began = False
        self.sending = bool(self.waits)
        if not self.waits:
            return
        if not closed or (flight is not None and not self.behind):
            self._strikes = 0  # it is not shown that this message is the reason
        elif in_flight:
            self._strikes += 1
        if not self._strikes:
            self._proof = False
        elif self._proof and self._strikes >= c.give_up > 0:
            self.set_aside("the broker closed the connection on it")
            return
        self.behind = self._strikes >= _BEHIND and c.end > 0 and not self.behind
        self.sending = not self.behind
        self.ahead = c.kept
