"""Packets to send, and packet identifiers in use. No I/O, no clock.

Packets are built in a ring and stay in place: QoS 0 messages and requests until they are written,
QoS 1 and 2 messages until they are acknowledged. So a resend repeats exactly the same bytes.

    0         tail         at           end           size
    |  free   | kept       | to be sent | free        | answers |
              oldest byte  cursor       next packet

No packet wraps: if the next one does not fit before the end of the ring, `top` marks where the
upper part ends and the packet goes to the start. The answers behind the ring (PUBACK, PUBREC,
PUBREL, PUBCOMP, PINGREQ) leave first, so a ring full of unacknowledged messages blocks nothing.
"""

# An imported builtin is found without a miss in the module.
from builtins import bytearray, bytes, len, memoryview

from .port import Shown, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The packet that a message waits for, by its first byte.
_PUBACK = const(0x40)
_PUBREC = const(0x50)
_PUBCOMP = const(0x70)


def converted(payload: "Any", qos: int, most: int) -> "Any":
    """Return as bytes a payload that is not a plain buffer: see `setup.converted`.

    This is not part of `publish` because its frame has no room for the imported name.
    """
    from .setup import converted

    return converted(payload, qos, most)


def _valid(s, name):
    is_name = s.is_name
    if not is_name:  # an import allocates, even of a module that is loaded
        from .topic import is_name

        s.is_name = is_name
    if (
        not (isinstance(name, bytes) or isinstance(name, bytearray))
        or len(name) > 65535
        or not is_name(name, 0, len(name))
    ):
        from .wire import field

        name = field("topic name", name, is_name)
    return name


class Stats(Shown):
    """Counters since the client was made. On a board they stay small ints up to 1,073,741,823."""

    received: int  # messages handed to handlers
    unrouted: int  # messages that no filter matched and no on_message took
    skipped: int  # messages larger than rx_size: acknowledged, not delivered
    strays: int  # acknowledgements of packet identifiers that were not in flight
    dup0: int  # messages with DUP at QoS 0, which is not allowed [MQTT-3.3.1-2]
    resent: int  # publishes and PUBRELs sent again after a reconnect
    renewed: int  # of those, sent as new because the broker had forgotten the session
    dropped: int  # messages and subscriptions set aside: see `give_up` and `drop`
    downgraded: int  # QoS 2 messages that the broker settled with PUBACK
    connects: int  # connections that a CONNACK accepted
    losses: int  # connections that ended, or could not be made


class Session(Shown):
    """A ring of `tx_size` bytes, and records of at most `inflight` QoS 1 and 2 messages.

    `gate(None)` is called before answers are sent, and holds them back by returning False. At
    CONNACK it is called with True if the broker kept the session, else False. An exception from
    it is raised by `poll` or `flush`: the answers, or at CONNACK all packets, stay queued, and
    the next call asks the gate again.
    """

    buf: memoryview  # the ring and the answers; assigning a slice of the wrong length raises
    size: int  # bytes of the ring
    limit: int  # no packet may end past this
    tail: int  # the oldest byte in use
    at: int  # the cursor: where the next span begins
    part: int  # bytes from the cursor on that are written already, of a span that has begun
    end: int  # where the next packet goes
    top: int  # where the upper part ends, 0 if nothing has wrapped
    room: int  # if `answers` is greater than this, there is no room for another one
    answers: int  # bytes of answers that wait
    pending: int  # messages accepted but not yet acknowledged; at QoS 0, not yet handed to the
    # network. Wait for 0 before deep sleep
    max_qos: int  # the highest QoS of the broker
    slots: int  # records
    count: int  # records in use
    # Packet identifiers in use, 0 for each free record: first the records, then the message that
    # publish_from sends, then the requests (section 2.3.1: all of them differ).
    ids: "list[int]"
    offs: "list[int]"  # where the packet of a record begins, -1 if the record is free
    waits: bytearray  # the packet that a record waits for
    last_id: int  # the last identifier assigned
    own: int  # the highest one that is assigned here
    open: "bool | None"  # the broker takes packets; None: see `writer.lost`
    received: "list[int]"  # packet identifiers of QoS 2 messages received but not released
    # (section 4.3.3, method B), 0 for each free place
    same: bool  # the broker has kept the session
    queued: bool  # something is left to write
    plain: bool  # the session is open, and nothing but messages in the ring is left to write
    blocked: bool  # the network takes no more
    held: bool  # answers must not leave now
    now: int  # the client's clock
    wrote: int  # its time when bytes last went out
    past: "Any"  # Resend, while packets of an earlier connection are in the ring
    urgent: "list[Any]"  # packets that go first on this connection
    large: "Any"  # Pieces, after the first message too large for the ring
    gate: "Callable[[bool | None], bool | None] | None"
    options: "dict[str, Any]"  # the arguments of a client; empty for a session alone
    on_dropped: "Callable[[int, bytes, str], None] | None"
    stats: "Stats"
    topic: "Any"  # the object last passed to publish; the session itself if that is mutable
    name: bytearray  # the same name, checked, with its length in front
    names: "list[Any]"  # the last topic names
    fields: "list[bytearray]"  # the same with their length in front, in memory that is
    # reused; the extra one at the end is for mutable names, which are not remembered
    oldest: int  # the index of the name to be replaced next
    is_name: "Callable[[Any, int, int], bool] | None"  # topic.is_name, once it has been needed

    def __init__(self, tx_size: int, inflight: int, last_id: int = 0) -> None:
        from .setup import claim

        claim(self, tx_size, inflight, last_id)

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> "int | None":
        """Accept a message, which `poll` or `flush` will send.

        Returns its packet identifier at QoS 1 and 2, 0 at QoS 0, and None if there is no room
        now. ValueError for a bad topic name or QoS and for a packet larger than `tx_size`,
        TypeError for a payload that is neither a buffer nor str. Allocates nothing if the topic
        is bytes and the payload is bytes or another buffer.
        """
        # Few locals: a frame of more than eleven words would be on the heap, for every call.
        if topic is not self.topic:
            self.check(topic)
        if (qos and qos != 1 and qos != 2) or (
            payload.__class__ is not bytes
            and payload.__class__ is not bytearray
            and payload.__class__ is not memoryview
        ):
            payload = converted(payload, qos, self.max_qos)
        topic = self.name  # type: ignore[assignment]
        n = len(topic) + len(payload)
        if qos:
            n += 2
        if self.end + n + 5 > self.limit and not self.make_room(n):
            return None
        if qos and self.count == self.slots:
            return None
        at = self.end
        self.buf[at] = (0x31 if retain else 0x30) | qos << 1
        at += 1
        while n > 127:
            self.buf[at] = n & 127 | 128
            n >>= 7
            at += 1
        self.buf[at] = n
        at += 1
        n = at + len(topic)
        self.buf[at:n] = topic  # type: ignore[assignment]
        if qos:
            n += 2
        at = n + len(payload)
        self.buf[n:at] = payload  # type: ignore[assignment]
        if qos:  # only now: a payload that cannot be copied leaves nothing behind
            qos = self.record(qos, n)
        self.end = at
        self.pending += 1
        self.queued = True
        return qos

    def check(self, topic: "bytes | str") -> None:
        """Put a topic name into `name`, and into `topic` unless it is mutable.

        ValueError or TypeError if it is not valid.
        """
        name = topic.encode() if isinstance(topic, str) else topic
        lasting = isinstance(topic, bytes) or isinstance(topic, str)  # other buffers are mutable
        if name in self.names:
            self.name = self.fields[self.names.index(name)]
        else:
            self.remember(_valid(self, name), lasting)
        self.topic = topic if lasting else self

    def remember(self, name: "bytes | bytearray", lasting: bool) -> None:
        """Put a valid topic name into `name`. If it is `lasting`, remember it in `names`."""
        i = -1
        if lasting:
            i = self.oldest
            self.names[i] = name
            self.oldest = (i + 1) % len(self.names)
        field = self.fields[i]
        if not field:
            field = self.fields[i] = bytearray()
        field[0:] = b""  # keeps its memory
        field.append(len(name) >> 8)
        field.append(len(name) & 255)
        field.extend(name)
        self.name = field

    def record(self, qos: int, n: int) -> int:
        """Give the PUBLISH at `end` a record, and put its packet identifier before `n`.
        ValueError for a QoS that the broker does not support."""
        if qos > self.max_qos:
            converted(b"", qos, self.max_qos)
        pid = self.next_id()
        self.buf[n - 2] = pid >> 8
        self.buf[n - 1] = pid & 255
        i = self.ids.index(0)
        self.ids[i] = pid
        self.offs[i] = self.end
        self.waits[i] = _PUBACK if qos == 1 else _PUBREC
        self.count += 1
        return pid

    def next_id(self) -> int:
        """Return an unused packet identifier: 1 to `own`, counting up and wrapping."""
        pid = self.last_id
        while True:
            pid = 1 if pid == self.own else pid + 1
            if pid not in self.ids:
                self.last_id = pid
                return pid

    def make_room(self, n: int) -> bool:
        """Make room at `end` for a packet with `n` bytes after its fixed header.

        Returns False if there is none now; ValueError if there never will be.
        """
        n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
        if n > self.size:
            raise ValueError(f"packet must be at most tx_size, {self.size} bytes, not {n}")
        if self.past:
            self.past.skip()
        # Free what lies before both the cursor and the oldest record.
        at = self.at
        for off in self.offs:
            # On the same side of the wrap the lower one is older, else the one not wrapped.
            if off >= 0 and (at > off if (at < self.tail) == (off < self.tail) else at < off):
                at = off
        if at < self.tail:
            self.top = 0
        self.tail = at
        self.limit = at - 1 if self.top else self.size
        if at == self.end and not self.top:
            self.tail = self.at = self.end = 0
            self.limit = self.size
            self.past = None
        if self.end + n > self.limit:
            if self.top or n >= self.tail:  # if they were equal, a full ring would look empty
                return False
            self.top = self.end
            self.limit = self.tail - 1
            self.plain = False
            if self.at == self.end:
                self.at = 0
            if self.past:
                self.past.wrapped()
            self.end = 0
        return True

    def settle(self, first: int, pid: int) -> bool:
        """Handle a PUBACK, PUBREC or PUBCOMP, whose first byte is `first`.

        Every PUBREC is answered. Returns False if nothing waits for the packet.
        """
        if pid not in self.ids:
            return False
        i = self.ids.index(pid)
        if i >= self.slots:
            return i == self.slots and self.large.settle(first)
        due = self.waits[i]
        if first == _PUBREC and due >= _PUBREC:
            self.waits[i] = _PUBCOMP
            self.answer(0x62, pid)
            return True
        if first != due:
            if first != _PUBACK or due != _PUBREC:
                return False
            self.stats.downgraded += 1  # this broker does not support QoS 2
        self.release(i)
        return True

    def release(self, i: int) -> None:
        """Free record `i`: its message is settled."""
        self.ids[i] = self.waits[i] = 0
        self.offs[i] = -1
        self.count -= 1
        self.pending -= 1
        if not self.count and self.at == self.end and not (self.top or self.past):
            self.tail = self.at = self.end = 0

    def answer(self, first: int, pid: int = 0) -> None:
        """Queue a packet of four bytes, or of two if it has no packet identifier.

        The caller checks that there is room: `answers` must be at most `room`.
        """
        at = self.size + self.answers
        self.buf[at] = first
        self.buf[at + 1] = 2 if pid else 0
        self.buf[at + 2] = pid >> 8
        self.buf[at + 3] = pid & 255
        self.answers += 4 if pid else 2
        self.queued = True
        self.plain = False
