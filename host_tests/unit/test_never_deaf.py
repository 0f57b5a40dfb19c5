"""Nothing that a broker or a handler does stops a client for longer than it has to.

Acknowledgements that never come, a network that takes nothing, and handlers that raise.
"""

from collections.abc import Callable, Iterable

import pytest

import peer
from flatmq.message import Message
from unit.both_versions import VersionBench

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, PINGREQ = 3, 4, 5, 6, 7, 8, 12
TIMEOUT = 4  # seconds, of the clients here
ACK_TIMEOUT = 3 * TIMEOUT  # unless given
HOUR = 3600

Make = Callable[..., VersionBench]


def kept(make: Make, **options) -> VersionBench:
    """Return a bench that is online, with a session that the broker keeps."""
    return make(clean_session=False, timeout=TIMEOUT, **options).online()


def live(bench: VersionBench, seconds: float, step: int = 50) -> list[peer.Packet]:
    """Poll while this time passes, or until the connection ends, and answer each PINGREQ.

    Returns the other packets that the client sends.
    """
    end = bench.clock.now + 1000 * seconds
    packets = []
    while bench.clock.now < end and bench.client.connected:
        bench.client.poll()
        for packet in bench.sent():
            if packet.first >> 4 == PINGREQ:
                bench.feed(peer.PINGRESP)
            else:
                packets.append(packet)
        bench.clock.now += step
    return packets


# Acknowledgements that never come


@pytest.mark.parametrize("kind", ["SUBSCRIBE", "UNSUBSCRIBE"])
def test_a_request_that_is_never_answered_is_tried_after_growing_pauses(
    kind: str, make: Make
) -> None:
    """Everything else flows meanwhile, and the application learns of it once."""
    reports = []
    bench = kept(make, on_dropped=lambda *why: reports.append(why))
    client = bench.client
    _ = client.subscribe(b"t", print, 1) if kind == "SUBSCRIBE" else client.unsubscribe(b"t")
    lasted = []
    for _ in range(7):
        begun = bench.clock.now
        live(bench, HOUR, step=500)
        lasted.append((bench.clock.now - begun) / 1000)
        bench.online(present=True)
        pid = client.publish(b"t", b"x", 1)
        assert [p.first >> 4 for p in live(bench, 0.1) if p.first >> 4 == PUBLISH] == [PUBLISH]
        bench.feed(peer.puback(pid))
    assert lasted == sorted(lasted) and lasted[-1] > lasted[0] + 15
    assert reports == [(0, b"t", "the broker has not answered this topic filter")]


def next_request(bench: VersionBench) -> peer.Packet:
    """Return the next SUBSCRIBE, which comes alone."""
    for _ in range(HOUR):
        packets = live(bench, 1, step=500)
        if packets:
            (request,) = packets
            assert request.first >> 4 == SUBSCRIBE
            return request
    raise AssertionError("no request")


def test_a_refused_subscription_is_tried_again_after_growing_pauses(make: Make) -> None:
    """The broker's access control may be ill for a while. The application learns of it once."""
    reports = []
    bench = kept(make, on_dropped=lambda *why: reports.append(why))
    subscription = bench.client.subscribe(b"t", print, 1)
    request = next_request(bench)
    pauses = []
    for _ in range(13):
        bench.feed(peer.suback(request.pid, 0x80))
        assert subscription.granted == b"\x80"
        begun = bench.clock.now
        request = next_request(bench)
        pauses.append((bench.clock.now - begun) / 1000)
    assert pauses[0] <= 2 and pauses == sorted(pauses)
    assert 600 <= pauses[-1] <= 602
    assert reports == [(0, b"t", "the broker refuses this filter: 0x80")]
    bench.lose()
    bench.online(present=True)  # maybe it was started again
    (request,) = live(bench, 0.1)
    bench.feed(peer.suback(request.pid, 1))
    assert subscription.granted == b"\1"
    assert live(bench, HOUR, step=500) == []


def filters_of(request: peer.Packet) -> list[bytes]:
    """Return the topic filters of a SUBSCRIBE."""
    return [f for f in (b"a", b"b", b"c", b"d") if peer.text(f) in request.body[2:]]


def test_of_several_filters_those_refused_are_tried_again(make: Make) -> None:
    """The others are not: that would bring their retained messages each time."""
    reports = []
    bench = kept(make, on_dropped=lambda *why: reports.append(why))
    subscription = bench.client.subscribe([b"a", b"b", b"c"], print, 1)
    for present in (False, True, False):
        if present:
            bench.lose()
            bench.online(present=True)  # the broker still has those that it granted
        elif reports:
            bench.lose()
            bench.online()
        if not present:
            request = next_request(bench)
            assert filters_of(request) == [b"a", b"b", b"c"]
            bench.feed(peer.suback(request.pid, 1, 0x80, 0x80))
            assert subscription.granted == b"\1\x80\x80"
        for _ in range(3):
            request = next_request(bench)
            assert filters_of(request) == [b"b", b"c"]
            bench.feed(peer.suback(request.pid, 0x80, 0x80))
        assert reports == [(0, f, "the broker refuses this filter: 0x80") for f in (b"b", b"c")]
    bench.feed(peer.suback(next_request(bench).pid, 1, 0x80))
    assert subscription.granted == b"\1\1\x80"
    request = next_request(bench)
    assert filters_of(request) == [b"c"]
    bench.feed(peer.suback(request.pid, 0))
    assert subscription.granted == b"\1\1\0"
    assert live(bench, HOUR, step=500) == []
    assert len(reports) == 2


def test_a_granted_filter_is_not_reported_when_the_broker_closes_on_the_others(make: Make) -> None:
    reports = []
    bench = kept(make, on_dropped=lambda *why: reports.append(why))
    bench.client.subscribe([b"a", b"b"], print, 1)
    bench.feed(peer.suback(next_request(bench).pid, 1, 0x80))
    for _ in range(4):
        assert filters_of(next_request(bench)) == [b"b"]
        bench.lose()
        bench.online(present=True)
    assert [why[:2] for why in reports] == [(0, b"b")] * 2


@pytest.mark.parametrize("when", ["paused", "on its way", "closed", "away"])
def test_a_refused_filter_that_was_given_up_is_not_tried_again(when: str, make: Make) -> None:
    bench = kept(make)
    subscription = bench.client.subscribe([b"a", b"b", b"c"], print, 1)
    bench.feed(peer.suback(next_request(bench).pid, 1, 0x80, 0x80))
    again = next_request(bench) if when != "paused" else None
    if when == "away":
        bench.feed(b"\xf1\0")  # a rule is broken, which nobody takes for a refusal
    bench.client.unsubscribe(b"b")
    sent = live(bench, 0.1)
    if when == "closed":
        bench.lose()
    if not bench.client.connected:
        bench.online(present=True)
        again, *sent = live(bench, 0.1)
    if again:
        codes = [0x80 for _ in filters_of(again)]
        assert len(codes) == (2 if when == "on its way" else 1)
        bench.feed(peer.suback(again.pid, *codes))
        sent += live(bench, 0.1)  # after a close with two on their way, one at a time
    (request,) = sent
    assert request.first >> 4 == 10
    bench.feed(peer.unsuback(request.pid))
    assert (subscription.filters, subscription.granted) == ([b"a", b"c"], b"\1\x80")
    request = next_request(bench)
    assert filters_of(request) == [b"c"]
    bench.feed(peer.suback(request.pid, 1))
    assert subscription.granted == b"\1\1"
    assert live(bench, HOUR, step=500) == []


def test_a_refused_filter_holds_up_no_list_that_has_it_too(make: Make) -> None:
    """Both are asked for: the call may well come because the broker takes it now."""
    bench = kept(make)
    bench.client.subscribe([b"a", b"b"], print, 1)
    request = next_request(bench)
    for _ in range(5):  # the next try is seconds away
        bench.feed(peer.suback(request.pid, *(0x80 for _ in filters_of(request))))
        request = next_request(bench)
    bench.feed(peer.suback(request.pid, 0x80, 0x80))
    other = bench.client.subscribe([b"b", b"d"], print, 1)
    first, second = live(bench, 0.1)
    assert [filters_of(p) for p in (first, second)] == [[b"a", b"b"], [b"b", b"d"]]
    bench.feed(peer.suback(second.pid, 1, 1))
    assert other.granted == b"\1\1"


@pytest.mark.parametrize("then", ["subscribe", "unsubscribe", "withdraw"])
def test_a_refused_subscription_holds_nothing_up(then: str, make: Make) -> None:
    """Neither another one to the same filter nor its end waits for the next try."""
    bench = kept(make)
    client = bench.client
    first = client.subscribe(b"t", print, 1)
    bench.feed(peer.suback(next_request(bench).pid, 0x80))
    if then == "subscribe":
        client.subscribe(b"t", print, 0)
    elif then == "unsubscribe":
        client.unsubscribe(b"t")
    else:
        client.withdraw(first)
    packets = live(bench, 0.1)
    assert [p.first >> 4 for p in packets] == {"subscribe": [8], "unsubscribe": [10]}.get(then, [])
    for packet in packets:
        bench.feed(
            peer.suback(packet.pid, 0) if then == "subscribe" else peer.unsuback(packet.pid)
        )
    assert live(bench, HOUR, step=500) == []


def ends_without_pingresp(bench: VersionBench, traffic: Iterable[bytes]) -> None:
    """Assert that a PINGREQ without an answer ends the connection, whatever else comes in."""
    assert [packet.first >> 4 for packet in bench.sent()] == [PINGREQ]
    for _ in range(3 * ACK_TIMEOUT):
        if bench.client.connected:
            bench.pass_time(1000)
            for packet in traffic:
                bench.feed(packet)
    assert not bench.client.connected
    assert bench.client.error.kind == "timeout"


def again(bench: VersionBench) -> list[peer.Publish]:
    """Connect again to the same session, and return what is published then."""
    bench.online(present=True)
    sent = live(bench, 1)
    return [peer.take_apart(p) for p in sent if p.first >> 4 == PUBLISH]


@pytest.mark.parametrize("traffic", [False, True])
def test_a_ping_for_which_messages_wait_has_a_time(traffic: bool, make: Make) -> None:
    """A message leaves alone, after PINGRESP, if the broker has closed on one before."""
    bench = kept(make, keepalive=0)
    bench.client.publish(b"t", b"x", 1)
    bench.sent()
    bench.lose()
    bench.online(present=True)
    ends_without_pingresp(bench, [peer.publish(b"other", b"x")] * traffic)
    assert [message.payload for message in again(bench)] == [b"x"]


def test_a_ping_for_which_subscribe_waits_has_a_time(make: Make) -> None:
    """It waits if received identifiers may be of an earlier session: a CONNACK was lost."""
    bench = kept(make, keepalive=0)
    bench.client.subscribe(b"#", lambda message: None, 2)
    (request,) = live(bench, 1)
    bench.feed(peer.suback(request.pid, 2), peer.publish(b"t", b"x", 2, 7))
    bench.sent()
    bench.lose()
    bench.greet()
    bench.lose()
    bench.online(present=True)
    ends_without_pingresp(bench, [peer.publish(b"other", b"x", 1, 100, dup=True)])


@pytest.mark.parametrize("kind", ["PUBACK", "SUBACK"])
def test_it_may_wait_for_ever(kind: str, make: Make) -> None:
    bench = kept(make, ack_timeout=0)
    if kind == "PUBACK":
        pid = bench.client.publish(b"t", b"x", 1)
    else:
        bench.client.subscribe(b"t", print, 1)
    (packet,) = live(bench, 2 * HOUR, step=500)
    assert bench.client.connected
    bench.feed(peer.puback(pid) if kind == "PUBACK" else peer.suback(packet.pid, 1))
    assert (bench.client.pending, bench.client.stats.losses) == (0, 0)


@pytest.mark.parametrize("qos", [0, 1])
def test_the_time_begins_with_a_message_that_awaits_something(qos: int, make: Make) -> None:
    bench = kept(make)
    for _ in range(10):
        if qos:
            pid = bench.client.publish(b"t", b"x", 1)
            live(bench, ACK_TIMEOUT / 2)
            bench.feed(peer.puback(pid))
        else:
            bench.client.publish(b"t", b"x", 0)
        live(bench, 3 * ACK_TIMEOUT)
        assert bench.client.connected
    bench.client.publish(b"t", b"x", 1)
    start = bench.clock.now
    live(bench, 3 * ACK_TIMEOUT)
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
    assert ACK_TIMEOUT * 0.95 <= (bench.clock.now - start) / 1000 <= ACK_TIMEOUT * 1.25 + 0.1


# An application that does something else for longer than an answer may take


AWAY = 600_000  # ms


def waits_for(kind: str, make: Make) -> tuple[VersionBench, bytes]:
    """Return a bench whose client waits for an answer of this kind, and the answer."""
    bench = make(clean_session=False, timeout=TIMEOUT)
    if kind == "CONNACK":
        bench.greet()
        return bench, peer.connack(0)
    bench.online()
    if kind == "PINGRESP":
        while not bench.sent():
            bench.pass_time(1000)
        return bench, peer.PINGRESP
    if kind == "PUBACK":
        bench.client.publish(b"t", b"x", 1)
    else:
        bench.client.subscribe(b"t", print, 1)
    bench.client.flush()
    (packet,) = live(bench, 0.1)
    if kind == "PUBACK":
        return bench, peer.puback(peer.take_apart(packet).pid)
    return bench, peer.suback(packet.pid, 1)


@pytest.mark.parametrize(
    ("kind", "before"),
    [(kind, n) for kind in ("PINGRESP", "PUBACK", "SUBACK") for n in (0, 60)] + [("CONNACK", 0)],
)
def test_an_answer_that_came_while_the_application_was_away_is_in_time(
    kind: str, before: int, make: Make
) -> None:
    """So is one behind `before` messages, which are several reads."""
    bench, answer = waits_for(kind, make)
    bench.arrives(*[peer.publish(b"other", bytes(40))] * before, answer)
    bench.clock.now += AWAY
    while bench.client.poll():
        bench.clock.now += 10
    live(bench, 1)
    assert (bench.client.connected, bench.client.pending) == (True, 0)
    assert (bench.client.stats.losses, bench.client.stats.unrouted) == (0, before)
    assert bench.client.requests == []


@pytest.mark.parametrize("kind", ["CONNACK", "PINGRESP", "PUBACK", "SUBACK"])
def test_an_answer_that_has_not_come_by_then_is_late(kind: str, make: Make) -> None:
    bench, _ = waits_for(kind, make)
    bench.clock.now += AWAY
    for _ in range(2):
        bench.client.poll()
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")


# Handlers that raise


class Failure(Exception):
    """Raised by the handlers here."""


def polled(bench: VersionBench, times: int = 100) -> int:
    """Poll this many times; return how many times a handler raised."""
    raised = 0
    for _ in range(times):
        try:
            bench.client.poll()
        except Failure:
            raised += 1
    return raised


ANSWERS = {0: [], 1: [PUBACK], 2: [PUBREC]}


# A network that takes nothing


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("each", [1, 8, 100])
def test_poll_returns_true_only_for_bytes_that_came_in(each: int, qos: int, make: Make) -> None:
    """The network takes nothing while messages come in that have to be acknowledged."""
    got: list[bytes] = []
    bench = kept(make, on_message=lambda message: got.append(message.payload))
    client, stream = bench.client, bench.stream
    payloads = [b"%02d" % i for i in range(60)]
    packets = [peer.publish(b"t", text, qos, i + 1) for i, text in enumerate(payloads)]
    stream.room = 0
    for at in range(0, len(packets), each):
        bench.arrives(*packets[at : at + each])
    spins = 0
    for _ in range(300):
        before = sum(map(len, stream.incoming))
        waits = len(bench.link.waits)
        came = client.poll(50)
        read = before - sum(map(len, stream.incoming))
        spins += came != (read > 0) or (not came and len(bench.link.waits) == waits)
    assert spins == 0
    assert bench.link.waits[-1] == (50, True), "until the network takes something"
    stream.room = None
    bench.drain()
    for _ in range(200):
        client.poll()
    assert got == payloads
    kind = PUBACK if qos == 1 else PUBREC
    assert [(p.first >> 4, p.pid) for p in bench.sent()] == [(kind, i + 1) for i in range(60)]


# Handlers that end their subscription

LARGE = bytes(range(250)) * 2


@pytest.mark.parametrize("rest", ["another handler", "on_message"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("before", [[], [b"other"], [b"t/#"], [b"other", b"t/#"]])
@pytest.mark.parametrize("payload", [LARGE, b"small"], ids=["large", "small"])
def test_a_handler_that_ends_its_subscription_and_raises_costs_no_piece(
    payload: bytes, before: list[bytes], qos: int, rest: str, make: Make
) -> None:
    """The message goes on to those that have not had it yet."""
    pieces: list[tuple[int, bytes]] = []
    calls = 0

    def keeps(message: Message) -> None:
        pieces.append((message.offset, message.payload))

    def raises(message: Message) -> None:
        nonlocal calls
        calls += 1
        bench.client.unsubscribe(b"t/+")
        raise Failure

    more = {"on_message": keeps, "chunks": True} if rest == "on_message" else {}
    bench = kept(make, rx_size=64, **more)
    names = [*before, b"t/+", *([b"t/1"] if rest != "on_message" else [])]
    takes = {b"t/+": raises, b"t/1": keeps, b"other": print}
    # on_message is only for what no subscription takes.
    takes[b"t/#"] = keeps if rest == "on_message" else lambda message: None
    for name in names:
        bench.client.subscribe(name, takes[name], qos=2, chunks=True)
    bench.client.poll()
    data = bench.wire(peer.publish(b"t/1", payload, qos, 7 if qos else 0))
    bench.stream.incoming.extend(data[at : at + 50] for at in range(0, len(data), 50))
    assert (polled(bench), calls) == (1, 1)
    got = list(dict.fromkeys(pieces))
    assert b"".join(part for _, part in got) == payload
    ends = [offset + len(part) for offset, part in got]
    assert [offset for offset, _ in got] == [0, *ends[:-1]]
    kinds = [p.first >> 4 for p in bench.sent() if p.first >> 4 <= PUBCOMP]
    assert kinds == ANSWERS[qos]
    # The next message goes to all of them, once.
    pieces.clear()
    bench.feed(peer.publish(b"t/1", b"next", 1, 8))
    assert pieces == [(0, b"next")]


# No room


def test_a_publish_without_room_is_counted(make: Make) -> None:
    bench = kept(make, inflight=2, tx_size=128)
    client = bench.client
    assert client.stats.refused == 0
    assert [client.publish(b"t", b"x", 1) is None for _ in range(5)] == [0, 0, 1, 1, 1]
    assert client.stats.refused == 3
    bench.stream.room = 0
    accepted = [client.publish(b"t", bytes(50)) for _ in range(10)]
    assert client.stats.refused == 3 + accepted.count(None)
    with pytest.raises(ValueError, match="tx_size"):
        client.publish(b"t", bytes(200))
    assert client.stats.refused == 3 + accepted.count(None), "there never will be room"
