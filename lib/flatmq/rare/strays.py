"""Handle what is rare: what is refused or dropped, identifiers. Loaded for one call."""

from .. import port
from ..engine import end_of, id_of
from ..port import const, ticks_add
from ..queue import find, release

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client
    from ..message import Message, Subscription

_PAUSE = const(1000)  # ms before a subscription is tried again: this,
_LONGEST = const(600000)  # doubled up to this
_NO_ACKNOWLEDGEMENT = const(5)
_RULE = const(15)  # larger numbers are rules that a packet breaks: see `reasons`
_ANSWERS = const((9, 11))  # SUBACK and UNSUBACK
_REPORT = const(3)  # closes on a subscription after which the application is informed


def next_id(c: "Client") -> int:
    """Return the next free identifier, and set `stop` to the next one in use."""
    pid = c.last_id
    if c.renamed:
        c.renamed = {old: new for old, new in c.renamed.items() if find(c, new) >= 0}
    while True:
        if pid >= c.own:
            pid = 0
        least = c.own - pid + 1
        for old in c.renamed or ():
            i = old - pid & 65535
            if i and i < least:
                least = i
        p = 0
        while p < c.end:
            if c.q[p] & 6:
                i = id_of(c.q, p) - pid & 65535
                if i and i < least:
                    least = i
            p = end_of(c.q, p)
        for r in c.requests:
            i = r.id - pid & 65535
            if r.id and i and i < least:
                least = i
        if c.large and c.large.waits and c.large.pid:
            i = c.large.pid - pid & 65535
            if i and i < least:
                least = i
        if least > 1:
            c.stop = pid + least & 65535 or 1
            return pid + 1
        pid += 1


def drop(self: "Client", packet_id: int) -> bool:
    """Set a pending message aside. It may still reach the broker if a part of it has left.
    Returns False if no pending message has this packet identifier."""
    reason = "dropped by the application"
    if self.large and self.large.waits and self.large.pid == packet_id > 0:
        self.large.set_aside(reason)
        return True
    if self.renamed:
        packet_id = self.renamed.get(packet_id, packet_id)
    p = find(self, packet_id)
    if p < 0 or packet_id < 1 or (self.gone and packet_id in self.gone):
        return False
    # What may fail for lack of memory comes first.
    topic = topic_of(self.q, p)
    if self.alone:
        self.alone.clear(packet_id)
        if self.alone.alone == packet_id:
            self.alone.alone = 0  # it is not awaited, and proves nothing
    # The engine cuts it out, once none of its bytes are on their way.
    self.gone = list(self.gone or ()) + [packet_id]  # noqa: RUF005 - as MicroPython has it
    self.full = True
    self.kept -= 1
    self.pending -= 1
    if self.large:
        self.large.ahead -= 1  # the broker has not taken it
    p = self.q[p]
    try:
        self.flush()  # which raises what a hook does
    finally:
        report(self, p, topic, packet_id, reason)
    return True


def topic_of(q: bytearray, p: int) -> bytes:
    """Return the topic name of the message at `p` in a queue."""
    while q[p + 1] > 127:
        p += 1
    return bytes(q[p + 4 : p + 4 + (q[p + 2] << 8 | q[p + 3])])


def report(c: "Client", first: int, topic: bytes, pid: int, reason: str) -> None:
    """Report that a PUBLISH with this first byte is dropped."""
    if first & 6 == 6:  # the broker has the message but never sends PUBCOMP
        return
    c.stats.dropped += 1
    for old in c.renamed or ():
        if c.renamed[old] == pid:
            pid = old  # which the application knows
            break
    if c.on_dropped is not None:
        c.on_dropped(pid, topic, reason)


def place(c: "Client", pid: int) -> int:
    """Return where a message that is there begins: with 0 the first one at QoS 0."""
    p = 0
    if pid:
        return find(c, pid)
    while c.q[p] & 6:
        p = end_of(c.q, p)
    return p


def set_aside(c: "Client", pid: int, reason: str) -> None:
    """Give up the message with this identifier, or with 0 the first one at QoS 0."""
    remove(c, place(c, pid), pid, reason)


def remove(c: "Client", p: int, pid: int, reason: str) -> None:
    """Cut the message at `p` out of the queue, and report it; at QoS 0 `pid` is 0."""
    first = c.q[p]
    topic = topic_of(c.q, p)  # before anything changes: memory may be short
    release(c, p)
    report(c, first, topic, pid, reason)


def give_up(c: "Client", m: "Message") -> None:
    """Report a message whose handlers have raised too often."""
    c.stats.dropped += 1
    c.done = c.limit = 0
    if c.on_dropped is not None:
        c.on_dropped(0, m.topic, "its handler raised an exception each time")


def other(c: "Client", r: "Subscription", codes: bytes) -> bool:
    """Handle an answer that refuses topic filters, or is about a part of them.

    Each refusal is reported once. Returns whether the request is put off. Only what is refused is
    asked for again: otherwise each try would bring the retained messages of the others.
    """
    port.drop("strays")
    known = r.granted
    found = {f: known[i] for i, f in enumerate(r.filters)} if known else {}
    for i, f in enumerate(r.asked):
        found[f] = codes[i]
    refused = [f for f in r.filters if found[f] > 127]
    r.granted = bytes([found[f] for f in r.filters])
    r.asked = r.filters if refused == r.filters else refused or r.filters
    if not refused or r not in c.subscriptions:
        return False  # an UNSUBACK, or nobody asks for it any more
    again = known or r.names != [b""]  # a call of umqtt raises
    if again:
        r.id = r.strikes = 0
        r.pause = min(max(r.pause * 2, _PAUSE), _LONGEST)
        c.due = port.ticks_ms()  # the engine looks when this is due
        r.due = ticks_add(c.due, r.pause)
    if r.granted != known and c.on_dropped is not None:
        for i, f in enumerate(r.filters):
            if f in refused and not (known and known[i] == found[f]):
                c.on_dropped(0, f, f"the broker refuses this filter: {found[f]:#x}")
    return bool(again)


def lost(c: "Client", error: "Any", step: "Any", flight: "int | None", closed: bool) -> None:
    """Handle the end of an accepted connection, maybe because of a request that was in flight.

    That is if the peer has `closed` it, has not answered, or has broken a rule in its answer. With
    one request and no message in flight, that request waits for a while before it is tried again.
    With more, requests are sent one at a time from now on, and messages wait for them. `error` and
    `step`: see `dial.lost`; `flight`: see `dial.mark`.
    """
    for r in c.requests:
        if r.asked != r.filters:  # without those that were given up meanwhile
            r.asked = [f for f in r.asked if f in r.filters] or r.filters
        if not r.strikes:
            r.pause = 0  # refused or put off before: the broker may take it now
    n = c.subs.count(c)
    reason = "closed the connection on"
    if error.__class__ is int and error > _RULE and step >> 4 in _ANSWERS:
        reason = "broke a rule in its answer to"
        flight = None  # no message is the cause
    elif error is _NO_ACKNOWLEDGEMENT:
        reason = "has not answered"
    elif not closed:
        return
    if n > 1 or (n and flight is not None):
        c.apart = True
        return
    for r in c.requests:
        if r.id:
            # The first time it may have been chance.
            r.pause = min(max(r.pause * 2, _PAUSE), _LONGEST) if r.pause else 1
            r.strikes += 1
            r.id = 0  # once, even if this is called again
            if r.strikes == _REPORT and c.on_dropped is not None:
                for f in r.asked:
                    c.on_dropped(0, f, f"the broker {reason} this topic filter")
