"""Split received bytes into packets, and pass each to its handler. No I/O of its own."""

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .v5_client import Client

# Returned for a packet that cannot be handled until there is room for the answer.
LATER = "later"


def reading(
    s: "Client",
    read: "Callable[[Any], int | None]",
    greeted: "Callable[[int, int], str | None]",
    handler: "Callable[[int, int, int], str | None] | None" = None,
) -> "Iterator[Any]":
    """Read with `read(buf)`, and handle the packets for a client's session.

    The first packet must be CONNACK, whose flags and return code go to `greeted`. In MQTT 5
    all packets except PUBLISH go to `handler(first, at, end)`, and the first one may be AUTH.

    Each step yields None if nothing came in, True if something did, or the reason why it stopped:
    a text if a rule was broken; the exception that `read` raised, or 0 at the end of the stream;
    or, while `busy`, the exception of a handler. The next step handles that message again.

    Packets of up to `rx_size` bytes are handled where they lie in `rx`, which is twice as large;
    larger messages are handled in pieces. Bytes are read into the upper half. The start of a cut
    packet moves to just below the middle, so that the next bytes complete it. Two spare bytes at
    the end let the parser look ahead without checking at each byte whether it has come.
    """
    buf = s.rx
    size = len(buf) // 2 - 1
    into = memoryview(buf)[size:-2]
    at = have = more = 0  # `more`: bytes still to come of a message in pieces
    bulk = s.bulk
    router: Any = None
    large: Any = None
    greeting = True
    what: Any
    n: Any
    while True:
        start = n = size + at - have
        if at != n:
            if bulk:  # never on a board: copying a slice is faster than a loop, but allocates
                buf[n:size] = buf[at:have]
            else:
                while at < have:
                    buf[n] = buf[at]
                    n += 1
                    at += 1
            at = start
        while True:
            try:
                what = read(into)
            except Exception as e:
                what = e
            if what and what.__class__ is int:
                break
            yield what
        have = size + what
        s.heard = s.now
        s.asked = False
        if greeting:
            if buf[at] == 0x20:
                greeting = False
            elif buf[at] != 0xF0 or not handler:
                yield "CONNACK is not first"
        while at < have:
            what = None
            s.busy = True
            try:
                if bulk and s.open and not more:
                    at = bulk(buf, at, have)
                    if at == have:
                        break
                first = buf[at]
                n = buf[at + 1]  # if it has not come yet, `end` is past `have` anyway
                t = at + 2
                if n > 127 and not more:
                    n &= 127
                    end = 7  # the bits by which the next byte is shifted
                    while t < have and end < 28:
                        n |= (buf[t] & 127) << end
                        end = end + 7 if buf[t] > 127 else 99
                        t += 1
                    if end == 28:
                        what = "Remaining Length of 5 bytes"
                    elif end < 99:
                        break
                end = t + n
                if more:
                    end = at + more if at + more < have else have
                    what = large.piece(at, end)
                    if what is None:
                        more -= end - at
                elif what:
                    pass
                elif end > have:
                    if end - at <= size or t > have:
                        break
                    large = s.load()
                    large.message.set_flags(first)
                    large.message.at = at
                    large.message.end = end
                    # A text, or where the payload begins; 0 if the header is not complete.
                    what = large.begin(t, have)
                    if not what:
                        break
                    if what.__class__ is int:
                        large = s.load().large
                        more = end - what
                        end = what
                        what = None
                elif first & 0xF0 == 0x30:
                    if router is None:
                        router = s.load()
                    what = router.publish(first, t, end)
                elif handler:
                    what = handler(first, t, end)
                elif first != 0xD0 or n:  # else PINGRESP
                    pid = buf[t] << 8 | buf[t + 1]
                    if n < 2 or (n > 2 and first != 0x90):
                        what = "length"
                    elif first == 0x20:
                        what = greeted(pid >> 8, pid & 255)
                    elif not pid:
                        what = "packet identifier 0"
                    else:
                        if first == 0x40 or first == 0x70:
                            n = s.settle(first, pid)
                        elif first == 0x90 or first == 0xB0:
                            n = s.load().answered(first, bytes(buf[t:end]))
                        elif s.answers > s.room:
                            n = LATER
                        elif first == 0x50:
                            n = s.settle(first, pid)
                        elif first == 0x62 or (first == 0x6A and s.options["version"] == 3):
                            if pid in s.received:
                                s.received[s.received.index(pid)] = 0
                            s.answer(0x70, pid)
                            n = True
                        else:
                            n = "type or flags"
                        if n is False:
                            s.stats.strays += 1
                        elif n is not True:
                            what = n
            except BaseException as e:
                what = e
            if what is None:
                at = end
                if not s.open:  # a handler has disconnected, or the broker has refused
                    at = have
            elif what.__class__ is not str:
                yield what
            else:
                s.busy = False
                yield True if what is LATER else f"packet {first:#x}: {what}"
        s.busy = False
        yield True
