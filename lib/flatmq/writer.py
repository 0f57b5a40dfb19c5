"""Run a session on a connection: begin it, write what is queued, and end it.

No I/O of its own.
"""

from .port import const
from .session import Session

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def writing(
    s: Session, write: "Callable[[Any, int, int], int | None]", hello: "bytes | bytearray"
) -> "Iterator[Exception | None]":
    """Write `hello`, then, once the session is `open`, everything that is queued.

    Each step calls `write(buf, at, n)` until the network takes no more, and yields the
    exception that it raised, else None.

    A span that has begun is finished before the next one begins. If the network took none of it,
    it is offered again with the same start and length, as TLS streams require.
    """
    buf = s.buf
    src: Any = hello
    at = 0
    left = len(hello)
    # For a span of the ring: where its first packet begins that is not completely written, and
    # the number of QoS 0 messages from there on, -1 if it is not known.
    packet = -1
    whole = 0
    answered = 0  # the size of a span of answers
    while True:
        if s.plain:
            at = packet = s.at
            left = s.end - at
            whole = s.pending - s.count
        while left:
            try:
                n = write(src, at, left)
            except Exception as e:
                n = 0
                yield e
            if not n:
                s.blocked = True
                yield None
                s.blocked = False
                continue
            s.wrote = s.now
            at += n
            left -= n
            if packet >= 0 and (left or whole < 0):
                # Only a part was written, or the ring has wrapped: look at every packet.
                whole = -1
                s.part = at - s.at if left else 0
                while packet < at:
                    n = shift = 0
                    stop = packet + 1
                    while src[stop] > 127:
                        n |= (src[stop] & 127) << shift
                        shift += 7
                        stop += 1
                    stop += 1 + (n | src[stop] << shift)
                    if stop > at:
                        break
                    if src[packet] & 0xF6 == 0x30:
                        s.pending -= 1
                    packet = stop
        # A span has ended.
        if packet >= 0:
            packet = -1
            if whole > 0:
                s.pending -= whole
            if s.plain and at == s.end:
                if s.count:
                    s.at = at
                else:
                    s.tail = s.at = s.end = 0
                s.queued = False
                yield None
                continue
            s.at = 0 if at == s.top else at
        elif answered:  # answers queued meanwhile move to the front
            s.answers -= answered
            for n in range(s.size, s.size + s.answers):
                buf[n] = buf[n + answered]
            answered = 0
        src = buf
        if s.open:
            large = s.large
            if s.answers and not (s.held or (large and large.begun)):
                at = s.size
                left = answered = s.answers
                continue
            if s.urgent and not (large and large.begun):
                src = s.urgent.pop(0)
                at = 0
                left = len(src)
                continue
            if large and large.sending:
                left = large.next()
                src = large.data
                at = large.at
                if left or not large.sending:
                    continue
                s.blocked = True  # the next piece goes as soon as the network takes it
                yield large.failed
                continue
            if s.past:
                left = s.past.next()
                if left:
                    at = packet = s.at
                    whole = -1
                    continue
                if not s.past or s.urgent or (s.answers and not s.held):
                    continue
            elif s.at != s.end:
                at = packet = s.at
                left = s.end - at
                whole = -1 if large and large.waits else s.pending - s.count
                if left < 0:
                    left = s.top - at
                    whole = -1
                continue
            elif not s.answers:
                if not s.count:
                    s.tail = s.at = s.end = s.top = 0
                    s.limit = s.size
                s.queued = False
                s.plain = not (s.top or (large and large.waits))
        yield None


def resume(s: Session, same: bool) -> None:
    """Handle CONNACK: queued packets may leave. `same`: the broker has kept the session."""
    if s.open is None:  # memory was short when the last connection ended
        lost(s)
    s.same = same
    if not same:
        for i in range(len(s.received)):
            s.received[i] = 0
        if s.past:
            s.past.forget()
    if s.gate is not None:
        s.gate(same)
    s.open = True


def lost(s: Session, closed: bool = False) -> None:
    """Handle the end of a connection; `closed`: by the peer.

    A packet that had begun to leave is sent again from its start. After a MemoryError none of
    this is done; `open` stays None, and `resume` does it.
    """
    s.answers = 0
    s.blocked = s.held = s.plain = False
    empty = s.pending == (1 if s.large and s.large.waits else 0)
    was_open = s.open is not False
    s.open = None
    if was_open and not (empty or s.past):
        from .resend import Resend

        s.past = Resend(s)
    doomed = -1
    if empty:
        # The ring is empty except for requests, which are built again.
        s.tail = s.at = s.part = s.end = s.top = 0
        s.limit = s.size
        s.past = None
    elif s.past and not was_open:
        s.past.outage()
    elif was_open:
        doomed = s.past.lost(closed)
        s.at = s.tail
        s.part = 0
        s.queued = True
    s.urgent.clear()
    if s.large:
        s.large.lost(closed and was_open and s.at == s.tail)
    s.open = False
    if doomed >= 0:
        from .resend import set_aside

        set_aside(s, doomed, "the broker closed the connection on it")
