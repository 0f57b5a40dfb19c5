"""Receive from the broker into the log in bulk: append, sync, then acknowledge.

An ordinary client hands each message to a handler and acknowledges it. Here one loop looks at
every PUBLISH in a chunk of up to 256 KiB, and all of them go to the log as one record, the same
bytes as they came. Topic names and properties are not judged: a message that the broker passes on
is kept, whatever is wrong with it, or it would come again on every connection. Packets of other
types, and those whose parts do not fit, are left to the client's ordinary way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flatmq import Client
from flatmq.bulk_cpython import head_of, take_in_bulk
from flatmq.message import Message
from flatmq.rare import qos2
from flatmq.v5 import Client5
from flatmq.wire import get_length

from .carried import end_of
from .log import Writer

CHUNK = 256 * 1024  # bytes per read, at most
DELAY_MS = 5  # a message waits this long for others to share its sync, at most
AT_ONCE = 10  # so many messages are synced at once: a broker may allow 20 in flight
_MUCH = 1 << 20  # bytes that are synced at once
# Where so many came at once, the broker does not wait for answers. In a pause more come, for one
# read and one sync: these cost more than to take a message.
_FLOOD = 64
_PAUSE_S = 0.001

# By the first byte of a packet: the size of its packet identifier, or not for the loop.
_OTHER = 255
_WAY = bytearray([_OTHER] * 256)
for _first in range(0x30, 0x40):
    _WAY[_first] = (0, 2, 2, _OTHER)[_first >> 1 & 3]


# What `Bulk` stands before: a client at any version.
if TYPE_CHECKING:
    _Base = Client
else:
    _Base = object


class Bulk(_Base):
    """A client of any version that appends every message to a `log`, whatever its topic.

    It sends an acknowledgement only after what it acknowledges is synced.

    delay_ms   how long a message waits for others to share its sync, at most
    forgotten  called when the broker has accepted the connection and has no session

    Messages larger than `rx_size` are records of their own. While the log is full the client reads
    nothing, so the broker keeps what it cannot send. If the disk fails, `poll` raises its OSError
    before anything is acknowledged; the next call tries again.
    """

    mqtt = 4
    """The version of MQTT whose packets go to the log; 4 also for 3.1, which has the same."""

    def __init__(
        self,
        log: Writer,
        client_id: bytes | str,
        host: str = "",
        port: int = 1883,
        *,
        delay_ms: int = DELAY_MS,
        forgotten: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        options.setdefault("rx_size", CHUNK)
        options.setdefault("incoming", 65535)
        options["give_up"] = 0  # a message that the log does not take is tried for ever
        # No packet is smaller than its answer. A read is followed by another one only while no
        # more than a buffer of answers waits, so there is always room for those to one buffer.
        options["answers"] = 2 * options["rx_size"] + 64
        super().__init__(
            client_id, host, port, on_message=self.take, chunks=True, quiet=True, **options
        )
        self.log = log
        self._most = options["rx_size"]
        """Bytes of answers that may wait while something is read."""
        self.messages = 0
        """Messages appended since the client was made."""
        self._forgotten = forgotten
        self._delay_ns = delay_ms * 1_000_000
        self._data: bytes | None = None  # a copy of what is to be parsed, and two bytes more,
        self._base = 0  # and where in the buffer it begins
        self._since = 0  # ns: when the oldest of what is not synced came, 0 if all is synced;
        self._unsynced = 0  # its size in bytes,
        self._unanswered = 0  # and how many messages of it are to be acknowledged
        self._piecemeal = bytearray()  # a message of which not all pieces have come,
        self._head = 0  # and where in it the payload begins
        self._leaving = False
        self.gate = self._answers_may_leave
        take_in_bulk(self, self._take_all, self._reads)

    @property
    def paused(self) -> bool:
        """True while nothing is read: the log is full, or the broker accepts no answers."""
        stop = len(self.acks) > self._most or self.log.full
        return stop and self.connected and not self._leaving

    def poll(self, ms: int = 0) -> bool:
        """Poll as `Client.poll` does, and sync what has waited long enough."""
        if ms and self._since:
            left = self._since + self._delay_ns - time.monotonic_ns()
            ms = min(ms, max(0, -(-left // 1_000_000)))
        before = self.messages
        moved = super().poll(ms)
        if self._since:  # the client has not asked: there are no answers, or they cannot leave
            self._answers_may_leave(None)
        if ms and self.messages - before >= _FLOOD:
            time.sleep(_PAUSE_S)
        return moved

    def disconnect(self, timeout_ms: int = 1000, *args: Any, **more: Any) -> bool:
        """Disconnect as `Client.disconnect` does, even if the log is full.

        What comes in now is not acknowledged.
        """
        self._leaving = True
        try:
            return super().disconnect(timeout_ms, *args, **more)
        finally:
            self._leaving = False

    def commit(self) -> None:
        """Sync the log. The next `flush` acknowledges what is in it."""
        self.log.sync()
        self._since = self._unsynced = self._unanswered = 0

    def _reads(self) -> bool:
        """Return whether something may be read: see `take_in_bulk`."""
        if (self.log.full or len(self.acks) > self._most) and self.paused:
            return False
        self._data = None
        return True

    def _answers_may_leave(self, same: bool | None) -> bool:
        """Sync if that is due, and return whether acknowledgements may leave.

        At CONNACK, note the new connection instead. This is the client's `gate`: see
        `flatmq.Client`.
        """
        if same is not None:
            self._unanswered = 0  # the client has dropped those of the last connection
            self._piecemeal.clear()
            if not self.session_present:
                self._forgotten()
        elif self._since:
            if (
                self._unanswered < AT_ONCE
                and self._unsynced < _MUCH
                and time.monotonic_ns() - self._since < self._delay_ns
            ):
                return False
            self.commit()
        return True

    def _append(self, body: Any, count: int, answers: int) -> None:
        self.log.append(body, count, time.time_ns() // 1000, self.mqtt)
        self.messages += count
        self._unsynced += len(body)
        self._unanswered += answers
        if not self._since:
            self._since = time.monotonic_ns()

    def _take_all(self, buf: bytearray, at: int, end: int) -> int:
        """Append the messages from `at` on, and return where the first other packet begins.

        It ends at a packet of another type, one that is cut, and one whose parts do not fit.
        """
        if self._data is None:
            self._base = at
            self._data = bytes(memoryview(buf)[at : end + 2])
        data = self._data
        have = len(data) - 2
        start = at = at - self._base
        way = _WAY
        walks = self.mqtt == 5
        acked: list[bytes] = []  # packet identifiers, at QoS 1
        hold = acked.append
        received: list[bytes] = []  # and at QoS 2,
        seen: set[bytes] = set()  # each once
        spans: list[Any] = []
        count = 0
        while at < have:
            first = data[at]
            number = way[first]
            if number == _OTHER:
                break
            n = data[at + 1]
            if n < 128:
                e = at + 2
            elif data[at + 2] < 128:  # of a message of up to 16 KB; faster than a call
                e = at + 3
                n += (data[at + 2] << 7) - 128
            else:
                n = get_length(data, at + 1, have)
                if n < 0:
                    break
                e = at + (n & 3) + 2
                n >>= 2
            end = e + n
            if end > have:
                break
            e += 2 + (data[e] << 8 | data[e + 1])
            p = e + number
            if p > end:
                break
            if walks:
                if p == end:
                    break
                n = data[p]
                if p + n >= end if n < 128 else not end_of(data, p, end)[0]:
                    break
            if number:
                pid = data[e:p]
                if pid == b"\0\0":
                    break
                if first & 4:
                    if pid in seen or not self._is_new(first, pid):
                        spans.append(memoryview(data)[start:at])
                        start = end
                        count -= 1
                    seen.add(pid)
                    received.append(pid)
                else:
                    hold(pid)
            count += 1
            at = end
        spans.append(memoryview(data)[start:at])
        if count:
            body = b"".join(spans) if len(spans) > 1 else spans[0]
            self._append(body, count, len(acked) + len(received))
            self.stats.received += count
        for pid in seen:
            qos2.keep(self, int.from_bytes(pid, "big"))
        for head, pids in ((b"\x40\2", acked), (b"\x50\2", received)):
            if pids:
                queued = self.queue(head + head.join(pids))
                assert queued
        return self._base + at

    def _is_new(self, first: int, pid: bytes) -> bool:
        """Return whether a message at QoS 2 did not come before (section 4.3.3, method B)."""
        self.message.first = first
        return qos2.is_new(self, int.from_bytes(pid, "big"))

    def take(self, m: Message) -> None:
        """Handle a piece of a message that is larger than the buffer, with `chunks`."""
        if not m.offset:
            self._piecemeal = head_of(m, self.pieces.long)
            self._head = len(self._piecemeal)
        # If appending failed, the last piece comes again.
        del self._piecemeal[self._head + m.offset :]
        self._piecemeal += m.payload
        if m.last:
            self._append(bytes(self._piecemeal), 1, 1 if m.qos else 0)
            self._piecemeal = bytearray()


class BulkClient(Bulk, Client):
    """A bulk client in MQTT 3.1.1 or 3.1."""


class BulkClient5(Bulk, Client5):
    """A bulk client in MQTT 5, with the additional arguments of `v5.Client5`.

    The packets in the log have properties.
    """

    mqtt = 5
