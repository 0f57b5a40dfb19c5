"""How do messages get from the broker into the log? By the chunk: appended, synced, acknowledged.

An ordinary client hands each message to a handler and acknowledges it by itself. Here one loop
looks at every PUBLISH of a chunk that was read, up to 256 KiB of them, and the bytes between the
first and the last go to the log as they are, in one record. What is not a PUBLISH at QoS 0 or 1
that keeps every rule goes the client's ordinary way, which also knows what to refuse.
"""

from __future__ import annotations

import time
from typing import Any

from flatmq import Client
from flatmq.message import Message
from flatmq.wire import get_length, is_name, put_length

from .log import Writer

CHUNK = 256 * 1024  # bytes that one read takes at the most
DELAY_MS = 5  # that a message waits for others to be synced with, at the most
AT_ONCE = 10  # messages to acknowledge that are synced at once: a broker may have 20 in flight
_MUCH = 1 << 20  # bytes to sync, or of acknowledgements to send
_NAMES = 100_000  # topic names that are remembered as valid

# What the loop does by the first byte of a packet: the bytes of a packet identifier, or nothing.
_OTHER = 255
_WAY = bytearray([_OTHER] * 256)
for _first in (0x30, 0x31):
    _WAY[_first] = 0
for _first in (0x32, 0x33, 0x3A, 0x3B):
    _WAY[_first] = 2
_ANSWERED = 2  # Router: a subscription that waits for nothing


class _Identifiers(list[int]):
    """Those of a Router's QoS 2 messages, which is asked for one at every step. Here it knows at
    once: a broker without a limit has thousands in flight."""

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


class BulkClient(Client):
    """A client that appends every message it receives to a `log`, whatever its topic, and sends
    no acknowledgement before what it acknowledges is synced.

    A message larger than `rx_size`, and each at QoS 2, is a record of its own. It reads nothing
    while the log is full: the broker keeps what it cannot send. OSError of the disk comes out of
    `poll`, before anything was acknowledged; calling again goes on where that was.
    """

    def __init__(
        self,
        log: Writer,
        client_id: bytes | str,
        host: str = "",
        port: int = 1883,
        *,
        delay_ms: int = DELAY_MS,
        **options: Any,
    ) -> None:
        options.setdefault("rx_size", CHUNK)
        options.setdefault("incoming", 65535)
        super().__init__(client_id, host, port, **options)
        self.log = log
        self.messages = 0
        """Messages appended since the client was made."""
        self.remembered = False
        """Whether the broker, where it has the session, has the subscriptions as they are."""
        self._delay_ns = delay_ms * 1_000_000
        self._names: set[bytes] = set()
        self._data: bytes | None = None  # a copy of what is to be parsed, and two bytes more,
        self._base = 0  # and where in the buffer it begins
        # PUBACK, PUBREC and PUBCOMP, in the order in which they fell due (section 4.6): while what
        # was before them is not synced,
        self._held: list[bytes] = []
        self._held_size = 0
        self._acks: list[bytes] = []  # and since it is
        self._acks_size = 0
        self._since = 0  # ns: since when something is to be synced, or held; 0: nothing is
        self._unsynced = 0  # bytes
        self._large = bytearray()  # a message that comes in pieces,
        self._head = 0  # and where in it the payload begins

    @property
    def waits(self) -> bool:
        """Whether it must not read on: the log is full, or the broker takes no answers."""
        return self.log.full or self._acks_size > _MUCH

    def poll(self, ms: int = 0) -> bool:
        """As `Client.poll`, and sync what has waited for long enough."""
        if self._since:
            left = self._since + self._delay_ns - time.monotonic_ns()
            ms = min(ms, max(0, -(-left // 1_000_000)))
        moved = super().poll(ms)
        if self._since and time.monotonic_ns() - self._since >= self._delay_ns:
            self.commit()
            self.flush()
        return moved

    def flush(self) -> None:
        """As `Client.flush`, and send the acknowledgements of what is synced, in one write."""
        s = self._session
        if self._acks and self.state == "online":
            if s.left or (s.feed and s.feed.begun):
                super().flush()  # what has begun is finished first
            if not s.left and not (s.feed and s.feed.begun) and self.state == "online":
                s.plain = False
                s.src = memoryview(b"".join(self._acks))
                s.out = 0
                s.left = self._acks_size
                self._acks.clear()
                self._acks_size = 0
        super().flush()

    def commit(self) -> None:
        """Sync the log, and have what that makes safe acknowledged by the next `flush`."""
        self.log.sync()
        self._since = self._unsynced = 0
        if self._held:
            self._acks += self._held
            self._acks_size += self._held_size
            self._held.clear()
            self._held_size = 0

    def _append(self, body: Any, count: int) -> None:
        self.log.append(body, count, time.time_ns() // 1000)
        self.messages += count
        self._unsynced += len(body)
        if not self._since:
            self._since = time.monotonic_ns()

    # Connecting

    def _lost(self, kind, detail=None, code=0):
        # The broker sends again what it gets no acknowledgement of: by its identifier it would
        # mean something else on the next connection.
        self._held.clear()
        self._acks.clear()
        self._held_size = self._acks_size = 0
        self._data = None
        self._large.clear()
        return super()._lost(kind, detail, code)

    def forget(self) -> None:
        """The broker has a new session, without a subscription: told before any is asked for."""
        self.remembered = False

    def _on_connack(self, flags, code):
        if not flags and not code:
            self.forget()
        elif not code and self.remembered and self._router:
            # To subscribe again would bring every retained message again.
            for s in self._router._slots:
                if s and s.granted is None:
                    s.wait = _ANSWERED
        return super()._on_connack(flags, code)

    # Receiving

    def _shift(self):
        n = self._have - self._at
        to = self._rx_size - n
        self._buf[to : self._rx_size] = self._buf[self._at : self._have]
        self._at = self._start = to
        self._have = self._rx_size

    def _receive(self):
        if self.state != "online":
            return super()._receive()
        if self._at == self._have or self._cut:
            if self.waits:
                # Nothing is read, so silence says nothing about the link.
                self._heard = self._now
                self._asked = False
                return False
            if self._cut:
                self._shift()
            n = self._fill() if self._stream else None
            if not n:
                return False if n is None else self._lost("closed", "read")
            self._at = self._start
            self._have = self._rx_size + n
            self._heard = self._now
            self._asked = self._cut = False
        self._data = None
        self._busy = True
        try:
            n = self._piece() if self._more else self._at
            while n > 0:
                self._at = n
                if n < self._have:
                    n = self._publishes()
                    self._at = n
                if n >= self._have:
                    self._start = self._rx_size
                    break
                n = self._packet()
            else:
                self._cut = n == 0
        finally:
            self._busy = False
            self._data = None
        if self._held_size >= 4 * AT_ONCE or self._unsynced >= _MUCH:
            self.commit()
        self.flush()
        return True

    def _publishes(self):
        """Append the messages from here on, up to the first packet that is something else, cut,
        or breaks a rule. Returns where that begins."""
        if self._data is None:
            self._base = self._at
            self._data = bytes(memoryview(self._buf)[self._at : self._have + 2])
        data = self._data
        have = len(data) - 2
        start = at = self._at - self._base
        way = _WAY
        names = self._names
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
            if name not in names:
                if not is_name(name, 0, e - t):
                    break
                if len(names) >= _NAMES:
                    names.clear()
                names.add(name)
            if number:
                pid = data[e : e + 2]
                if pid == b"\0\0":
                    break
                hold(pid)
            count += 1
            at = end
        if count:
            self._append(memoryview(data)[start:at], count)
            self.stats.received += count
            if pids:
                self._held.append(b"\x40\2" + b"\x40\2".join(pids))
                self._held_size += 4 * len(pids)
        return self._base + at

    def _load(self):
        if not self._router:
            router = super()._load()
            router._find = self._found
            router._answer = self._hold
            router.pubrel = self._release
            router._ids = _Identifiers(len(router._ids))
        return self._router

    def _hold(self) -> None:
        """In place of `Router._answer`: the acknowledgement waits for the sync."""
        router = self._router
        qos, pid = router.message.qos, router._pid
        if not qos:
            return
        if qos == 2 and pid not in router._ids:
            router._ids[router._ids.index(0)] = pid
        self._hold_one(0x30 + 0x10 * qos, pid)

    def _release(self, pid: int) -> None:
        """In place of `Router.pubrel`: PUBCOMP keeps behind the PUBREC that may be held."""
        ids = self._router._ids
        if pid in ids:
            ids[ids.index(pid)] = 0
        self._hold_one(0x70, pid)

    def _hold_one(self, first: int, pid: int) -> None:
        self._held.append(bytes((first, 2, pid >> 8, pid & 255)))
        self._held_size += 4
        if not self._since:  # nothing was appended
            self._since = time.monotonic_ns()

    def _found(self, m: Message) -> None:
        """Every message has the same handler, also one of a subscription of earlier days."""
        self._router._routes[0] = self.take
        self._router._count = 1

    def take(self, m: Message) -> None:
        """Append a message. This is the handler to subscribe with, for messages that are not taken
        in bulk."""
        if m.offset == 0:
            head = 0x30 | m.dup << 3 | m.qos << 1 | m.retain
            number = self._router._pid if m.qos else 0
            name = m.topic
            n = 2 + len(name) + (2 if number else 0) + m.total
            header = bytearray(5)
            header[0] = head
            self._large = header[: put_length(header, 1, n)]
            self._large += len(name).to_bytes(2, "big") + name
            if number:
                self._large += number.to_bytes(2, "big")
            self._head = len(self._large)
        del self._large[self._head + m.offset :]  # a piece comes again that could not be appended
        self._large += memoryview(m.buf)[m.at : m.end]
        if m.last:
            self._append(bytes(self._large), 1)
            self._large = bytearray()
