"""The client at work: one generator reads, routes, acknowledges, writes, and keeps time.

`q` holds every PUBLISH that is not settled, in order; its first `sent` bytes have been written on
this connection. A packet in it says itself what it is, by the QoS bits of its first byte:

    0       written once, then garbage; garbage for certain once DUP is set
    1, 2    kept until PUBACK or PUBREC; DUP: written on an earlier connection
    3       a message at QoS 2 after PUBREC: kept until PUBCOMP, but not written again

`acks` holds all other packets to be sent: acknowledgements, requests, PINGREQ. They leave first.

A generator has its frame on the heap once, so everything used often is a local variable, whatever
their number. Whatever is rare is loaded when it is needed: see `port.load`.
"""

from . import MQTTError, port
from .port import MICROPYTHON, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from . import Client

_MASK = const(0x3FFFFFFF)  # the clock wraps at 30 bits, which is 12 days
# A time that is further away than 4.6 hours has come: nobody may have polled for days.
_FAR = const(0x3F000000)
_NAMES = const(8)  # remembered topic names: see `route`

# Reasons why a connection ends, with their texts in `reasons`.
_END = const(1)
_NO_CONNACK = const(3)
_NO_PINGRESP = const(4)
_NO_ACKNOWLEDGEMENT = const(5)
_INTERRUPTED = const(6)
_LEFT = const(7)
_LONG = const(16)
_NOT_FIRST = const(17)
_SHORT = const(19)
_QOS_3 = const(20)
_NO_ID = const(21)
_ID_0 = const(22)

# Made in advance, while there is memory.
NO_MEMORY = MQTTError("resource", "no memory")

# What a handler returns to be called with the same message again at the next poll.
HOLD = object()

# What is being called that may raise: a handler or a hook; of the link it is the name.
_HANDLER = const(1)
_HOOK = const(2)


def run(c: "Client") -> None:
    """Start an engine.

    A generator that waits keeps the names of the module that has called it, so that is this one.
    """
    c.step = engine(c).send
    c.step(None)


def engine(c: "Client") -> "Generator[Any, Any, None]":
    """Take the milliseconds of a `poll` at each step, or None to write only.

    A poll yields whether bytes came in, a `flush` whether some are left to write. Both yield an
    exception that they are to raise.
    """
    # Each use of the first sixteen locals takes a byte less.
    n: Any
    what: Any
    calling: Any = 0
    rx = c.rx
    q = c.q
    n = i = e = p = t = end = first = now = sent = left = 0
    at = have = size = len(rx) // 2 - 1
    ms: Any
    h: Any
    dial: Any
    stream = what = c.stream  # None, unless Ctrl-C has ended the engine before
    acks = src = c.acks
    m = c.message
    routes: Any = None
    bulk = c.bulk
    stats = c.stats
    find = rx.find
    into = memoryview(rx)[size:-2]
    ack = c.ack
    length = len
    ticks = port.ticks_ms
    hold = HOLD
    read: Any = None
    write: Any = None
    start = last = got = pos = more = wrote = heard = acked = 0
    again = 0  # how often the handlers of the first message have raised
    mask = _MASK
    far = _FAR
    # A tuple made in advance, while there is memory: all but the end of a generator.
    raised = Exception, KeyboardInterrupt, SystemExit
    doing: Any = None
    h = dial = None
    busy = False  # received packets are left to handle
    opened = moved = waits = False
    room = True  # to begin without another yield
    if what:
        what = _INTERRUPTED
    ms = yield None
    while True:
        try:
            # 1. Return to the application; a poll that has received nothing waits before, once.
            if got:
                stats.received += got
                got = 0
            if room:
                room = False  # received packets waited for room to be acknowledged
            elif moved or not ms or ms < 0 or what:
                if ms is None:
                    # To `disconnect`, what may not be sent now is not left.
                    moved = left > 0 or (c.leaving is None and (length(acks) > 0 or c.end > sent))
                ms = yield moved
                moved = False
            else:
                if c.state != "offline":
                    n = c.due - now & mask
                    if n < ms:
                        ms = n
                    elif n & far:
                        ms = 0
                if ms:
                    calling = "wait"
                    n = left > 0 or c.state == "connecting"
                    c.link.wait(ms, n or bool(c.large and c.large.sending))
                    calling = 0
                ms = 0

            # 2. The next step of connecting.
            if ms is not None and not what:
                now = ticks()
                if stream is None:
                    if c.state != "offline" and (c.state == "connecting" or c.due - now - 1 & far):
                        dial = load("dial", "")
                        stream = dial.step(c)
                        if c.state == "waiting":
                            ms = 0  # it has failed, which the application sees first
                        if stream:
                            bulk = c.bulk
                            five = c.five  # None, or what handles the packets of MQTT 5
                            read = stream.readinto
                            write = stream.write
                            src = c.hello
                            left = length(src)
                            wrote = heard = acked = now
                elif c.leaving is not None:
                    what = _LEFT

                # 3. Read into the upper half. The start of a cut packet moves below it.
                elif read:
                    if not busy:
                        if at < have:
                            n = i = size + at - have
                            if not MICROPYTHON:  # fast, but it allocates
                                rx[n:size] = rx[at:have]
                            while MICROPYTHON and at < have:
                                rx[n] = rx[at]
                                n += 1
                                at += 1
                            at = i
                        else:
                            at = size
                        have = size
                        calling = "read"
                        n = read(into)
                        # The usual poll, which finds nothing to do, takes this short way.
                        while (
                            n is None
                            and not (ms or moved or left or acks or q or c.large)
                            and not c.due - now - 1 & far
                        ):
                            ms = yield False
                            if ms is None:
                                break
                            now = ticks()
                            n = read(into)
                        calling = 0
                        if n is not None:
                            if n or n is False:  # reading nothing now: silence means nothing
                                heard = now
                                c.asked = 0
                                if n:
                                    have += n
                                    moved = busy = True
                            else:
                                what = _END
                                doing = "read"

                    # 4. Take the received packets one by one.
                    start = at
                    waits = False
                    while busy and at < have:
                        if bulk and opened and not more:
                            calling = _HOOK
                            at = bulk(rx, at, have)
                            calling = 0
                            if at == have:
                                break
                        if more:  # of a message larger than the buffer
                            end = at + more if at + more < have else have
                            calling = _HANDLER
                            n = c.pieces.step(at, end, again)
                            calling = again = 0
                            if n:
                                waits = n is hold
                                what = not waits and n  # the rule that it breaks
                                break
                            more -= end - at
                            at = end
                            continue
                        first = doing = rx[at]
                        if not opened and first != 0x20 and not (five and first == 0xF0):
                            what = _NOT_FIRST
                            break
                        n = rx[at + 1]  # if it has not come yet, `end` is past `have` anyway
                        t = at + 2
                        if n > 127:
                            n &= 127
                            i = 7
                            while t < have and i < 28:
                                n |= (rx[t] & 127) << i
                                i = i + 7 if rx[t] > 127 else 99
                                t += 1
                            if i == 28:
                                what = _LONG
                                break
                            if i < 99:
                                break
                        end = t + n
                        if end > have:
                            if end - at > size and t <= have:
                                c.sent = sent
                                h = c.pieces or (five or load("pieces")).Pieces(c)
                                n = h.start(at, have, t, end)
                                sent = c.sent
                                if n is hold:
                                    waits = True
                                elif n < 0:
                                    what = -n
                                elif n:  # the payload begins there
                                    more = end - n
                                    at = n
                                    continue
                            break
                        if first & 0xF0 == 0x30:
                            # A message: find its handler, call it, and acknowledge.
                            e = t + 2 + (rx[t] << 8 | rx[t + 1])
                            if e > end:
                                what = _SHORT
                                break
                            if not routes:
                                if c.message is None:
                                    load("message", "").Message(rx, c)
                                m = c.message
                                names = c.names
                                routes = c.routes
                            m.t = t
                            i = last
                            while find(names[i], t, e) != t:
                                i = i + 1 & _NAMES - 1
                                if i == last:
                                    i = m.route(e)
                                    break
                            last = i & _NAMES - 1
                            h = routes[i]
                            if first & 6:
                                e += 2
                                if first & 6 == 6:
                                    what = _QOS_3
                                elif e > end:
                                    what = _NO_ID
                                elif not (rx[e - 2] or rx[e - 1]):
                                    what = _ID_0
                                elif length(acks) > c.space:
                                    waits = True  # no room for the acknowledgement yet
                                if waits or what:
                                    break
                                if first & 4:
                                    c.two = c.two or load("qos2")
                                    n = rx[e - 2] << 8 | rx[e - 1]
                            m.first = first
                            m.end = end
                            p = e
                            if five:
                                if e < end and not rx[e]:
                                    e += 1  # no properties
                                else:
                                    i = five.route(c, e, end, i)
                                    if i < 0:
                                        what = -i
                                        break
                                    h = routes[i]
                                    e = m.at
                            m.at = e
                            if not first & 4 or c.two.is_new(c, n):
                                if h is None:
                                    h = c.on_message
                                if h is None:
                                    stats.unrouted += 1
                                elif h is False:
                                    stats.skipped += 1
                                elif again and again == c.give_up:
                                    load("strays").give_up(c, m)
                                else:
                                    calling = _HANDLER
                                    if h(m) is hold:
                                        calling = 0
                                        waits = True
                                        break
                                    calling = 0
                                    got += 1
                                if first & 8 and not first & 6:
                                    stats.dup0 += 1
                            again = 0
                            if first & 6:
                                ack[0] = 0x40
                                if first & 4:
                                    c.two.keep(c, n)
                                    ack[0] = 0x50
                                ack[2] = rx[p - 2]
                                ack[3] = rx[p - 1]
                                acks.extend(ack)
                        elif first == 0x40 and n == 2:
                            # PUBACK: usually for the first message.
                            h = rx[t] << 8 | rx[t + 1]
                            p = 0
                            while p < sent:
                                e = p + 1
                                n = q[e]
                                if n > 127:
                                    n &= 127
                                    i = 7
                                    e += 1
                                    while q[e] > 127:
                                        n |= (q[e] & 127) << i
                                        i += 7
                                        e += 1
                                    n |= q[e] << i
                                e += 1
                                n += e
                                if q[p] & 6:
                                    e += 2 + (q[e] << 8 | q[e + 1])
                                    if q[e + 1] == rx[t + 1] and q[e] == rx[t]:
                                        break
                                p = n
                            if p < sent and n <= sent and q[p] & 6 != 6:
                                if q[p] & 4:
                                    stats.downgraded += 1  # this broker does not support QoS 2
                                acked = now
                                if not (p or c.alone or c.large or c.own < 65535):
                                    c.stop = h  # those before it are free
                                if not c.gone or h not in c.gone:  # else it was counted by `drop`
                                    c.kept -= 1
                                    c.pending -= 1
                                sent -= n - p
                                c.end -= n - p
                                q[p:n] = b""
                                if not c.kept:
                                    c.renamed = None
                            elif not h:
                                what = _ID_0
                            elif not (c.large and c.large.settle(h)):
                                stats.strays += 1
                                if five:
                                    five.settle(c, h)
                        elif first == 0xD0 and not n:
                            if c.alone:
                                c.alone.update()
                            if c.unsure:
                                c.unsure = 2
                            if c.requests:
                                c.due = now  # they have waited for this
                        else:
                            c.sent = sent
                            if not opened:
                                calling = _HOOK  # CONNACK is handled again if the gate raises
                                c.began = left
                            if five:
                                h = five
                            elif first == 0x20:
                                h = dial or load("dial", "")
                            elif first & 0xDF == 0x90:
                                h = c.subs or load("subs", "")
                            else:
                                h = c.two = c.two or load("qos2")
                            what = h.other(c, first, t, end)
                            calling = 0
                            if what is hold:
                                what = None
                                waits = True
                                break
                            sent = c.sent
                            if what is True:  # it acknowledges something
                                what = None
                                acked = now
                            if not opened and c.connected:
                                opened = True
                                five = c.five  # None after falling back to 3.1.1
                                at = end
                                if c.on_connect is not None:
                                    calling = _HOOK
                                    c.on_connect(c)
                                    calling = 0
                        at = end
                        if what:
                            break

                    if busy:
                        busy = waits
                        if waits and not acks:  # else the link may be dead: no room to acknowledge
                            heard = acked = now  # what has come since is not read
                            c.asked = 0
                        if not moved:
                            room = at != start  # what was held back is handled: read more

                    # 5. The clock: what is late, or due, now that all that has come is handled.
                    if c.due - now - 1 & far and not what:
                        i = c.tick
                        p = moved and now - c.due & mask > i
                        if c.leaving is not None:
                            room = True  # step 2 ends the connection, after these answers
                        elif not opened:
                            what = _NO_CONNACK
                        else:
                            # The nearest deadline of an acknowledgement, PINGRESP, and PINGREQ.
                            h = c.kept and sent
                            if c.large:
                                h = h or (c.large.waits and not c.large.sending)
                            if c.requests:
                                i = c.subs.late(c)
                                if i < 0:
                                    what = _NO_ACKNOWLEDGEMENT
                            if five:
                                h = h or c.owed
                                calling = _HOOK
                                i = five.late(c, i)
                                calling = 0
                            if not h:
                                acked = now
                            elif c.ack_ms and now - acked & mask >= c.ack_ms:
                                what = _NO_ACKNOWLEDGEMENT
                            n = now - wrote & mask
                            if c.large and c.large.sending and n < c.timeout_ms:
                                n = c.timeout_ms - n  # bytes that leave show life, too
                            else:
                                if not c.asked:
                                    e = now - heard & mask
                                    n = c.interval - (n if n > e else e)
                                    if n <= 0:
                                        c.asked = now or -1
                                        acks.extend(b"\xc0\0")
                                if c.asked:
                                    n = min(c.timeout_ms, c.interval) - (now - c.asked & mask)
                                    if n <= 0:
                                        what = _NO_PINGRESP
                            c.due = now + (n if n < i else i) & mask
                            if c.since is not None and now - c.since & mask >= c.tick:
                                if c.unsure == 1 or (c.alone and c.alone.asked == 1):
                                    what = _NO_PINGRESP  # something waits for it
                                else:
                                    c.since = None  # the connection is a steady one
                                    c.tries = 0
                                    if c.release:
                                        dial = None
                                        if not c.requests:
                                            c.subs = None
                                        c.release("dial", "subs")
                        if p and what:
                            # The application was away: what is still to be read is in time.
                            what = None
                            c.due = now + c.tick & mask

            # 6. Write; what has begun is finished before anything else.
            while write and not what and (left or acks or q or c.alone or c.large):
                if not left:
                    h = False  # whether the gate holds the acknowledgements back
                    if not opened:
                        if not acks:
                            break
                        # AUTH, which alone may leave before CONNACK.
                    elif acks and c.gate is not None and c.leaving != b"":
                        calling = _HOOK
                        h = c.gate(None) is False
                        calling = 0
                    if acks and not (h or (c.large and c.large.began)):
                        src = acks
                        pos = 0
                        left = length(acks)
                    elif c.large and c.large.sending:
                        left = c.large.next()
                        src = c.large.data
                        pos = c.large.at
                        if not left:
                            what = c.large.error
                            if not what and not c.large.sending:
                                continue
                            break
                    else:
                        if c.full:
                            sent = strip(c, sent)
                        if c.end <= sent and not c.alone:
                            if sent and not c.kept:  # what left at QoS 0 behind the last one
                                q[0:sent] = b""
                                c.end = sent = 0
                            if c.large and c.large.behind and not c.kept:
                                c.large.resume()
                                continue
                            break
                        if c.leaving is not None and c.leaving != ():
                            break
                        src = q
                        left = c.end - sent
                        if c.alone:
                            left = c.alone.next(sent)
                            if not left and acks and not h:
                                continue
                        if not left:
                            break
                        if not sent:
                            acked = now
                calling = "write"
                n = write(src, sent if src is q else pos, left)
                calling = 0
                if not n:
                    break
                wrote = now
                left -= n
                if src is q:
                    sent += n
                    if left or sent < c.end:
                        sent = strip(c, sent, left)
                    else:
                        c.pending = c.kept + c.large.waits if c.large else c.kept
                        if c.kept:
                            if c.end > c.room >> 1:
                                c.full = True  # in time, before a message finds no room
                        elif not c.gone:
                            q[0:sent] = b""
                            c.end = sent = 0
                else:
                    pos += n
                    if src is acks and not left:
                        acks[0:pos] = b""
                        room = room or busy

            # 7. The end of a connection. Without memory for this, it is tried again.
            if what:
                try:
                    if stream:
                        stream = read = write = None
                        c.sent = sent
                        c.connected = False
                        # How far it came: 1 if nothing was written in part, and 2 if accepted.
                        c.began = 2 * opened + (not (left or (c.large and c.large.began)))
                    (dial or load("dial", "")).lost(c, what, doing)
                    what = None
                    ms = ms and 0  # the application sees this before the next try
                    sent = pos = left = more = again = 0
                    at = have = size
                    busy = room = False
                    src = acks
                except MemoryError:
                    c.error = NO_MEMORY
                else:
                    if opened:
                        opened = False
                        if c.on_disconnect is not None:
                            calling = _HOOK
                            c.on_disconnect(c)
                            calling = 0
        except raised as error:
            room = True
            n = calling.__class__ is str and isinstance(error, Exception)
            # Without memory for code or an answer, it is tried again.
            if n or ((not calling or (stream and not opened)) and isinstance(error, MemoryError)):
                what = error if n else NO_MEMORY  # an exception of the link
                doing = calling
                calling = 0
                if not (n or stream):  # the next step of connecting, within a second
                    c.error = what
                    c.due = now | 1023
                    what = ms = room = False
                continue
            # Of a handler or a hook; or Ctrl-C, after which nobody knows what was read or written.
            if calling != _HANDLER:
                again = 0
                if calling != _HOOK and calling != "wait" and not what:
                    what = _INTERRUPTED
                    c.connected = False
                    if c.state != "offline":
                        c.state = "waiting"
            elif isinstance(error, Exception):
                again += 1
            stats.received += got
            got = calling = 0
            ms = yield error
            moved = False


# The packets of the queue `q`, which are all PUBLISH: where they end, and whose they are


def end_of(q: "bytearray", p: int) -> int:
    """Return where the packet at `p` ends."""
    n = i = 0
    p += 1
    while q[p] > 127:
        n |= (q[p] & 127) << i
        i += 7
        p += 1
    return p + 1 + (n | q[p] << i)


def id_of(q: "bytearray", p: int) -> int:
    """Return the packet identifier of the packet at `p`."""
    p += 1
    while q[p] > 127:
        p += 1
    p += 3 + (q[p + 1] << 8 | q[p + 2])
    return q[p] << 8 | q[p + 1]


def strip(c: "Client", sent: int, size: int = 0) -> int:
    """Cut out what is not needed, and count what is: `kept` and `pending`.

    That is what was written at QoS 0, and the messages in `gone`, which wait while a span of
    `size` bytes is being written. Returns what is left of `sent`.
    """
    p = c.kept = 0
    c.pending = c.large.waits if c.large else 0
    while p < c.end:
        e = end_of(c.q, p)
        gone: Any = e <= sent or c.q[p] & 8
        if c.q[p] & 6:
            pid = id_of(c.q, p)
            gone = c.gone and not size and pid in c.gone
            c.kept += not gone
            if gone and p < sent and c.five:
                c.five.owe(c, pid)
        if gone:
            c.q[p:e] = b""
            c.end -= e - p
            if p < sent:
                sent -= e - p
        else:
            c.pending += 1  # at QoS 0, until all of it is written
            p = e
    if not size:
        c.gone = None
        c.full = False
    return sent
