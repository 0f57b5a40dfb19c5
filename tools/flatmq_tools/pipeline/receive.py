"""Receive from the broker into the log in bulk: append, sync, then acknowledge.

An ordinary client hands each message to a handler and acknowledges it. Here one loop looks at
every PUBLISH in a chunk of up to 256 KiB, and all of them go to the log as one record, the same
bytes as they came. A packet that is not a PUBLISH at QoS 0 or 1, or that breaks a rule, is left to
the client's ordinary way, which also knows what to refuse.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from flatmq import Client
from flatmq.message import Message
from flatmq.router import Subscription
from flatmq.topic import is_name
from flatmq.v5 import Client5
from flatmq.v5_router import Router5
from flatmq.wire import get_length, put_length

from .carried import Checked, end_of
from .log import Writer

CHUNK = 256 * 1024  # bytes per read, at most
DELAY_MS = 5  # a message waits this long for others to share its sync, at most
AT_ONCE = 10  # so many messages are synced at once: a broker may allow 20 in flight
_MUCH = 1 << 20  # bytes that are synced at once
_NAMES = 100_000  # topic names remembered as valid
_BROKEN = 10_000  # messages that break a rule remembered
_PAUSE_MS = 20  # between two looks at a log that is full

# By the first byte of a packet: the size of its packet identifier, or not for the loop.
_OTHER = 255
_WAY = bytearray([_OTHER] * 256)
for _first in (0x30, 0x31):
    _WAY[_first] = 0
for _first in (0x32, 0x33, 0x3A, 0x3B):
    _WAY[_first] = 2


class _Identifiers(list[int]):
    """The packet identifiers of received QoS 2 messages, as a client keeps them: 0 for each free
    place. Finding one takes no longer if there are thousands, as with a broker without a limit.
    """

    def __init__(self, size: int) -> None:
        super().__init__([0] * size)
        self._at: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))

    def __contains__(self, pid: object) -> bool:
        return pid in self._at if pid else bool(self._free)

    def index(self, pid: int, *_: Any) -> int:
        return self._at[pid] if pid else self._free[-1]

    def __setitem__(self, i: Any, pid: Any) -> None:
        old = self[i]
        if old:
            del self._at[old]
            self._free.append(i)
        if pid:
            self._at[pid] = i
            self._free.remove(i) if self._free[-1] != i else self._free.pop()
        super().__setitem__(i, pid)


class _Stream:
    """A stream that reads nothing while the client is paused."""

    def __init__(self, stream: Any, client: BulkClient) -> None:
        self.write = stream.write
        self._readinto = stream.readinto
        self._client = client

    def readinto(self, buf: Any) -> int | None:
        client = self._client
        if (client.log.full or client.answers > client.most) and client.paused:
            # That nothing comes in says nothing about the link.
            client.heard = client.now
            client.asked = False
            return None
        client._data = None
        return self._readinto(buf)


class _Link:
    """A link whose streams read nothing while the client is paused."""

    def __init__(self, link: Any, client: BulkClient) -> None:
        self._link = link
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    @property
    def address(self) -> Any:
        """The address of the broker; None if it must be looked up."""
        return self._link.address

    @address.setter
    def address(self, address: Any) -> None:
        self._link.address = address

    def stream(self) -> _Stream | None:
        """Return the stream once it is connected, None before."""
        stream = self._link.stream()
        return _Stream(stream, self._client) if stream else None

    def wait(self, ms: int, out: bool) -> None:
        """As the link does. While the client is paused, bytes to read do not count."""
        if self._client.paused:
            time.sleep(min(ms, _PAUSE_MS) / 1000)
        else:
            self._link.wait(ms, out)


class BulkClient(Client):
    """A client that appends every message it receives to a `log`, whatever its topic, and sends
    an acknowledgement only after what it acknowledges is synced.

    delay_ms   how long a message waits for others to share its sync, at most
    forgotten  called when the broker has accepted the connection and has no session

    Messages at QoS 2 and messages larger than `rx_size` are records of their own. While the log is
    full the client reads nothing, so the broker keeps what it cannot send. If the disk fails,
    `poll` raises its OSError before anything is acknowledged; the next call tries again.
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
        # No packet is smaller than its answer. A read is followed by another one only while no
        # more than a buffer of answers waits, so there is always room for those to one buffer.
        options["answers"] = 2 * options["rx_size"] + 64
        super().__init__(client_id, host, port, on_message=self._take, chunks=True, **options)
        self.log = log
        self.most = options["rx_size"]
        """Bytes of answers that may wait while something is read."""
        self.messages = 0
        """Messages appended since the client was made."""
        self.refused = 0
        """Messages that break a rule, came again, and were acknowledged without being kept."""
        self.refused_topic = b""
        """The topic name of the last of these."""
        self._forgotten = forgotten
        self._delay_ns = delay_ms * 1_000_000
        self._valid: set[bytes] = set()  # topic names,
        self._carried = Checked()  # and properties
        self._data: bytes | None = None  # a copy of what is to be parsed, and two bytes more,
        self._base = 0  # and where in the buffer it begins
        self._since = 0  # ns: when the oldest of what is not synced came, 0 if all is synced;
        self._unsynced = 0  # its size in bytes,
        self._unanswered = 0  # and how many messages of it are to be acknowledged
        self._piecemeal = bytearray()  # a message of which not all pieces have come,
        self._head = 0  # and where in it the payload begins
        self._leaving = False
        self.received = _Identifiers(options["incoming"])
        self.link = _Link(self.link, self)
        self.gate = self._answers_may_leave
        self.bulk = self._take_all

    @property
    def paused(self) -> bool:
        """Whether nothing is read: the log is full, or the broker takes no answers."""
        stop = self.answers > self.most or self.log.full
        return stop and self.connected and not self._leaving

    def poll(self, ms: int = 0) -> bool:
        """As `Client.poll`. Also sync what has waited long enough."""
        if ms and self._since:
            left = self._since + self._delay_ns - time.monotonic_ns()
            ms = min(ms, max(0, -(-left // 1_000_000)))
        moved = super().poll(ms)
        if self._since and not self.answers:  # else the client has asked
            self._answers_may_leave(None)
        return moved

    def disconnect(self, timeout_ms: int = 1000, *args: Any, **more: Any) -> bool:
        """As `Client.disconnect`. Does not stop at a log that is full: what comes in now is not
        acknowledged."""
        self._leaving = True
        try:
            return super().disconnect(timeout_ms, *args, **more)
        finally:
            self._leaving = False

    def subscribe(
        self,
        filters: bytes | str | list[bytes] | list[str],
        handler: Callable[[Message], None] | None = None,
        qos: int = 0,
        chunks: bool = True,
        *args: Any,
        **more: Any,
    ) -> Subscription:
        """As `Client.subscribe`, but messages go to the log and not to the `handler`."""
        new = super().subscribe(filters, handler or self._take, qos, chunks, *args, **more)
        new.names = [b""] * len(new.filters)  # matches no topic name: all go to on_message
        return new

    def commit(self) -> None:
        """Sync the log. The next `flush` acknowledges what is in it."""
        self.log.sync()
        self._since = self._unsynced = self._unanswered = 0

    def _answers_may_leave(self, same: bool | None) -> bool:
        """Sync if that is due, and return whether acknowledgements may leave. At CONNACK, note the
        new connection instead. This is the client's `gate`: see `flatmq.session.Session`."""
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
        """Append the messages from `at` on, up to the first packet that is something else, cut,
        or breaks a rule. Return where that begins."""
        if self._data is None:
            self._base = at
            self._data = bytes(memoryview(buf)[at : end + 2])
        data = self._data
        have = len(data) - 2
        start = at = at - self._base
        way = _WAY
        valid = self._valid
        walks = self.mqtt == 5
        carried = self._carried
        pids: list[bytes] = []
        hold = pids.append
        count = 0
        while at < have:
            number = way[data[at]]
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
            t = e + 2
            e = t + (data[e] << 8 | data[e + 1])
            if e + number > end:
                break
            name = data[t:e]
            if name not in valid:
                if not is_name(name, 0, e - t):
                    break
                if len(valid) >= _NAMES:
                    valid.clear()
                valid.add(name)
            if walks:
                p = e + number
                if p >= end:
                    break
                n = data[p]
                if n:
                    p += 1
                    n += p
                    if n > p + 127:
                        p, n = end_of(data, p - 1, end)
                    block = data[p:n]
                    if not p or n > end or (block not in carried and not carried.takes(block)):
                        break
            if number:
                pid = data[e : e + 2]
                if pid == b"\0\0":
                    break
                hold(pid)
            count += 1
            at = end
        if count:
            self._append(memoryview(data)[start:at], count, len(pids))
            self.stats.received += count
            if pids:
                queued = self.queue(b"\x40\2" + b"\x40\2".join(pids))
                assert queued
        return self._base + at

    def _take(self, m: Message) -> None:
        """Handle a message, or a piece of one, that goes the ordinary way."""
        answers = 1 if m.qos else 0
        if not m.size:  # it is whole, and lies behind its topic name as in the packet
            start = m.topic_at - 2
            self._append(self._header(m, m.end - start) + m.buf[start : m.end], 1, answers)
            return
        if not m.offset:
            name = m.topic
            head = len(name).to_bytes(2, "big") + name
            if m.qos:
                head += m.id.to_bytes(2, "big")
            head += self._block(m)
            self._piecemeal = self._header(m, len(head) + m.size) + head
            self._head = len(self._piecemeal)
        # If appending failed, the last piece comes again.
        del self._piecemeal[self._head + m.offset :]
        self._piecemeal += memoryview(m.buf)[m.at : m.end]
        if m.last:
            self._append(bytes(self._piecemeal), 1, answers)
            self._piecemeal = bytearray()

    def _block(self, m: Message) -> bytes:
        """Return the properties of a message that comes in pieces, with their length."""
        return b""

    @staticmethod
    def _header(m: Message, n: int) -> bytearray:
        """Return the fixed header of a message whose packet has `n` more bytes."""
        header = bytearray(5)
        header[0] = m.first
        return header[: put_length(header, 1, n)]


class _Router(Router5):
    """Subscriptions without an identifier: it would come with each message, and all of them go to
    the log.

    A message at QoS 1 or 2 whose properties break a rule ends the connection, and the broker
    sends it again on the next one, before all that it has kept since. Then it is acknowledged, or
    nothing else would ever come.
    """

    client: BulkClient5

    def __init__(self, client: BulkClient5) -> None:
        super().__init__(client)
        self._broken: set[bytes] = set()  # digests of what has ended a connection

    def mark(self, s: Any, supported: int) -> None:
        """Have a request carry no identifier. 0 stands for none: no message has it."""
        s.identifier = 0
        s.head = b"\0"

    def skip(self) -> str | None:
        """Read the properties of the message: see `Router5.skip`."""
        what = super().skip()
        m = self.message
        client = self.client
        client.unread = False
        if what is None:
            return None
        digest = hashlib.sha256(m.buf[m.topic_at : m.end]).digest()
        if m.qos and digest in self._broken:
            client.unread = True
            client.refused += 1
            client.refused_topic = m.topic
            return None
        if len(self._broken) >= _BROKEN:
            self._broken.clear()
        self._broken.add(digest)
        # The connection is about to end. What came before is acknowledged now, or the broker
        # would send it again.
        client.commit()
        client.flush()
        return what


class BulkClient5(BulkClient, Client5):
    """The same in MQTT 5, with the arguments that `v5.Client5` has besides: the packets in the log
    have properties.

    A packet whose properties break a rule goes the client's ordinary way, which ends the
    connection with the reason. If the same packet comes again on a later connection it is
    acknowledged, not kept, and counted in `refused`. A message whose properties are larger than
    `rx_size` is acknowledged, not kept, and counted in `stats.skipped`.
    """

    mqtt = 5
    unread = False
    """Whether the message that is handled is acknowledged and not kept."""

    def load(self) -> Router5:
        """Return the receiving half."""
        if not self.router:
            self.router = _Router(self)
        return super().load()  # type: ignore[return-value]

    def _take(self, m: Message) -> None:
        if not self.unread:
            super()._take(m)

    def _block(self, m: Message) -> bytes:
        found = m.properties
        size = bytearray(4)
        n = put_length(size, 0, found.stop - found.start)
        return bytes(size[:n] + found.buf[found.start : found.stop])
