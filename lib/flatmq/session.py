"""What is to be sent, and what waits for an acknowledgement. No I/O and no clock.

Publishes are built into a ring and stay in their place: at QoS 0 until they are written out, at
QoS 1 and 2 until they are acknowledged, so that sending again sends those very bytes.

    0         tail         at           end           size
    |  free   | kept       | to be sent | free        | answers |
              oldest byte  cursor       next packet

No packet wraps round the end of the ring: where the next one does not fit, `_top` marks the end
of the upper part, and it goes to the start. The answers behind the ring (PUBACK, PUBREC, PUBREL,
PUBCOMP, and PINGREQ) leave first, so that a ring full of unacknowledged messages stops nothing.

What is being written is a span: `left` bytes of `src` from `out` on. A span that has begun is
finished before another begins, and does not grow.
"""

from .port import const
from .wire import get_length, number, put_publish

TYPE_CHECKING = False
if TYPE_CHECKING:  # there is no typing on a board
    from typing import Any

_ANSWERS = const(64)
ROOM = 60  # with more than this in `answers` there is no room for another

# What handling a packet returns when it has to wait until there is room.
LATER = "later"

# What a record waits for.
_DONE = const(0)
PUBACK = 1
PUBREC = 2
PUBCOMP = 3

_len = len


class Stats:
    """Counters since the client was made. Small ints on a board up to 1,073,741,823."""

    def __init__(self) -> None:
        self.received = 0  # messages handed to handlers
        self.unrouted = 0  # messages that no filter matched and no on_message took
        self.skipped = 0  # messages larger than rx_size: acknowledged, not delivered
        self.strays = 0  # acknowledgements of packet identifiers that were not in flight
        self.resent = 0  # publishes and PUBRELs sent again after a reconnect
        self.renewed = 0  # of those, sent as new because the broker had forgotten the session
        self.connects = 0  # connections that a CONNACK accepted
        self.losses = 0  # connections that ended, or could not be made


class Session:
    """The outgoing ring of `tx_size` bytes, and records of at most `inflight` publishes at QoS 1
    and 2.

    `ids` are the packet identifiers in use, 0 for none: first those of the records, then that of
    a message too large for the ring, then one for each of `subscriptions` SUBSCRIBE and
    UNSUBSCRIBE packets (section 2.3.1 wants them distinct).
    The first identifier given out is the one after `last_id`.
    """

    def __init__(self, tx_size: int, inflight: int, subscriptions: int, last_id: int = 0) -> None:
        self._size = number("tx_size", tx_size, 16, 1 << 28)
        # Through a memoryview: assigning a slice of the wrong length raises, never resizes.
        self.buf = memoryview(bytearray(tx_size + _ANSWERS))
        self.src: bytearray | memoryview = self.buf
        self.out = self.left = self.answers = 0
        self.tail = self.at = self.end = 0
        self._top = 0  # 0: nothing has wrapped
        self._limit = tx_size  # where a packet must end at the latest
        self._done = 0  # up to here everything was written out, now or on an earlier connection
        self.same = True  # the broker remembers the session; see `next`
        self.due = 0  # SUBSCRIBE and UNSUBSCRIBE packets that are to be sent
        # Records in the order of publishing: a ring of `_count` that ends before `_slot`.
        self.slots = number("inflight", inflight, 1, 255)
        self.ids = [0] * (inflight + 1 + number("subscriptions", subscriptions, 0, 255))
        self._offs = [-1] * inflight  # where the packet begins
        self._wait = bytearray(inflight)
        self._slot = self._count = 0
        self._last = last_id
        # Nothing but QoS 0 messages from 0 to `end`, and nothing of it begun: the client's short
        # way. Whatever makes it untrue says so here, and the client finds out when it is again.
        self.plain = False
        self.large: Any = None  # Pieces, once there was a message too large for the ring,
        self.feed: Any = None  # and the same while that is not written out
        self.failed = ""  # why it cannot be
        self.stats = Stats()
        # Keeps over a reboot what QoS 2 needs: see `journal`.
        self.journal: Any = None

    # Publishing

    def publish_qos0(self, head: int, topic: bytes, payload: bytes) -> "int | None":
        """`publish` at QoS 0, by the shortest way."""
        if self.end + _len(topic) + _len(payload) + 7 > self._limit:  # 7: a header of 5, a length
            return self.publish(head, topic, payload)
        self.end = put_publish(self.buf, self.end, head, topic, payload)
        return 0

    def publish(
        self, head: int, topic: "bytes | bytearray", payload: "bytes | bytearray"
    ) -> "int | None":
        """Accept a PUBLISH whose first byte is `head`. Returns its packet identifier, 0 at
        QoS 0, None when there is no room now; ValueError when there never will be."""
        n = _len(topic) + _len(payload) + (4 if head & 6 else 2)
        n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
        if n > self._size:
            raise ValueError(f"packet: {n} bytes, tx_size allows {self._size}")
        if head & 6:
            if self._count == self.slots:
                return None
            self.plain = False
        if self.end + n > self._limit:
            if self._top or n >= self.tail:  # not ==: a full ring would look like an empty one
                return None
            self.plain = False
            self._top = self.end
            self._limit = self.tail - 1
            if self.at == self.end:
                self.at = 0
            if self._done == self.end:
                self._done = 0
            self.end = 0
        if not head & 6:
            self.end = put_publish(self.buf, self.end, head, topic, payload)
            return 0
        head |= self.next_id() << 8
        n = put_publish(self.buf, self.end, head, topic, payload)
        # Only now: a payload that could not be copied leaves no record behind.
        self.ids[self._slot] = head >> 8
        self._offs[self._slot] = self.end
        self._wait[self._slot] = PUBACK if head & 2 else PUBREC
        self._slot = (self._slot + 1) % self.slots
        self._count += 1
        self.end = n
        return head >> 8

    def next_id(self) -> int:
        """A packet identifier that is not in use: 1 to 65535, counting up and round."""
        while True:
            self._last = self._last % 65535 + 1
            if self._last not in self.ids:
                return self._last

    def settle(self, pid: int, wait: int) -> bool:
        """PUBACK, PUBREC or PUBCOMP for `pid`; `wait` is the constant of that name here. A PUBREC
        is answered, again if it comes again. False when it was not waited for."""
        if pid not in self.ids:
            return False
        i = self.ids.index(pid)
        if i >= self.slots:
            return i == self.slots and self.large.settle(wait)
        if wait == PUBREC and self._wait[i] >= PUBREC:
            if self.journal is not None:
                self.journal.pubrec(pid)
            self._wait[i] = PUBCOMP
            self.answer(0x62, pid)
            return True
        if wait != self._wait[i]:
            return False
        self._wait[i] = self.ids[i] = _DONE
        self._offs[i] = -1
        self._reclaim()
        return True

    def _reclaim(self):
        """Free what lies before both the cursor and the oldest record."""
        at = self.at
        while self._count:
            off = self._offs[self._slot - self._count]  # a negative index counts from the end
            if off < 0:
                self._count -= 1
            else:
                # On the same side of the wrap the lower is the older, else the one not wrapped.
                if at > off if (at < self.tail) == (off < self.tail) else at < off:
                    at = off
                break
        if at < self.tail:
            self._top = 0
        self.tail = at
        self._limit = at - 1 if self._top else self._size
        if at == self.end and not self._top:
            self.tail = self.at = self.end = self._done = 0

    def pending(self) -> int:
        """Publishes accepted and not yet acknowledged, or at QoS 0 not yet written out."""
        n = 1 if self.large and self.large.waits else 0
        for i in self._wait:
            if i:
                n += 1
        at = self.at
        passed = False
        while at != self.end:
            i = self._stop(at)
            passed = passed or at <= self._done < i
            if passed and not self.buf[at] & 6:
                n += 1
            at = 0 if i == self._top else i
        return n

    # Sending

    def answer(self, first: int, pid: int = 0) -> None:
        """Queue a packet of four bytes, or of two when it has no packet identifier. There must be
        room: see ROOM."""
        at = self._size + self.answers
        self.buf[at] = first
        self.buf[at + 1] = 2 if pid else 0
        self.buf[at + 2] = pid >> 8
        self.buf[at + 3] = pid & 255
        self.answers += 4 if pid else 2
        self.plain = False

    def next(self) -> bool:
        """Begin the next span; False when there is nothing to send. None may be under way.

        After `lost`, a broker that remembers the `same` session gets what it has not acknowledged
        again, with DUP or as PUBREL, and one that has forgotten gets it as new (section 4.4).
        """
        if self.feed and (self.feed.begun or not self.answers):
            return self.feed.next()
        self.src = self.buf
        if self.answers:
            self.out = self._size
            self.left = self.answers
            return True
        while self.at != self._done:  # what was written out before: pick what to send again
            self.out = self.at
            self.left = self._stop(self.at) - self.at
            if self._again():
                return True
            if self.answers:
                return self.next()
        if self.at == self.end:
            self.left = 0
            return False
        self.out = self.at
        self.left = (self._top if self.at > self.end else self.end) - self.at
        return True

    def _again(self):
        """Whether the packet at the cursor is to be sent again. If not, the cursor moves on."""
        at = self.at
        cut = at < self._done < at + self.left
        if not self.buf[at] & 6:
            wanted = cut
        else:
            wanted = at in self._offs
            if wanted:
                i = self._offs.index(at)
                self.stats.resent += 1
                if not self.same:
                    self.stats.renewed += 1
                    self.buf[at] &= 0xF7
                elif self._wait[i] == PUBCOMP:
                    self.answer(0x62, self.ids[i])
                    wanted = False
                else:
                    self.buf[at] |= 8  # DUP
        if not wanted:
            if cut:
                self._done = at + self.left
            self._move(at + self.left)
        return wanted

    def sent(self, n: int) -> None:
        """`n` bytes of the span were written out."""
        self.out += n
        self.left -= n
        if self.src is self.buf:
            if self.out > self._size:
                if not self.left:  # more answers may have come meanwhile
                    self.left = self._size + self.answers - self.out
                    if not self.left:
                        self.answers = 0
            else:
                if self.at <= self._done < self.out:
                    self._done = self.out
                if not self.left:
                    self._move(self.out)

    def _move(self, at):
        if at == self._top:
            if self._done == at:
                self._done = 0
            at = 0
        self.at = at
        self._reclaim()

    def forget(self) -> None:
        """The broker has forgotten the session: nothing is past PUBREC any more. At once, and not
        when its turn comes: the next connection may be to a broker that remembers this one."""
        for i, wait in enumerate(self._wait):
            if wait == PUBCOMP:
                self._wait[i] = PUBREC
        if self.journal is not None:
            self.journal.forget()

    def lost(self) -> None:
        """The connection is gone. Whatever had begun is to be sent from its beginning."""
        self.left = self.answers = 0
        self.plain = False
        self.at = self.tail
        if self.large:
            self.large.lost()

    def _stop(self, at):
        """Where the packet at `at` ends."""
        n = get_length(self.buf, at + 1, self._size)
        return at + (n & 3) + 2 + (n >> 2)
