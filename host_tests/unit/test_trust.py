"""A session that the broker says it has is trusted only if the client saw it being made.

The broker may lose the session while the client is away. The CONNACK that says so may be lost too,
and the next one then speaks of the session that was made in between, which is empty.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import peer
from unit.both_versions import VersionBench

PUBLISH, PUBREC, PUBREL, SUBSCRIBE = 3, 5, 6, 8
PINGREQ = 0xC0

Make = Callable[..., VersionBench]


def kinds(packets: list[peer.Packet]) -> list[int]:
    """Return the types of packets."""
    return [p.first >> 4 for p in packets]


def kept(make: Make, **options) -> VersionBench:
    """Return a bench that is online, with a session that the broker keeps."""
    return make(clean_session=False, **options).online()


def granted(make: Make, got: list[bytes] | None = None, qos: int = 1) -> VersionBench:
    """Return a bench whose only subscription has been granted."""
    bench = kept(make)
    handler = (lambda message: got.append(message.payload)) if got is not None else print
    subscription = bench.client.subscribe(b"t", handler, qos=qos)
    bench.client.poll()
    (request,) = bench.sent()
    bench.feed(peer.suback(request.pid, qos))
    assert subscription.granted == bytes([qos])
    return bench


def past_pubrec(make: Make) -> tuple[VersionBench, int]:
    """Return a bench with a QoS 2 message whose PUBREL was sent, and its packet identifier."""
    bench = kept(make)
    pid = bench.client.publish(b"t", b"x", 2)
    bench.client.poll()
    bench.feed(peer.pubrec(pid))
    assert kinds(bench.sent()) == [PUBLISH, PUBREL]
    return bench, pid


def unanswered(bench: VersionBench) -> None:
    """End a connection on which CONNECT was sent, before its CONNACK comes."""
    bench.greet()
    bench.lose()


def not_made(bench: VersionBench) -> None:
    """Have no connection for a while: CONNECT is not sent."""
    bench.link.fails = "connect"
    losses = bench.client.stats.losses
    while bench.client.stats.losses < losses + 2:
        bench.pass_time(500)
    bench.link.fails = ""


def refused(bench: VersionBench) -> None:
    """Have CONNECT refused, which makes no session (section 3.2.2.3)."""
    bench.greet()
    bench.feed(peer.connack(3))
    assert bench.client.error.kind == "refused"


def back(bench: VersionBench, *, present: bool = True) -> list[peer.Packet]:
    """Connect again, answer each PINGREQ, and return the other packets sent after CONNECT."""
    bench.online(present=present)
    packets = []
    for _ in range(4):
        sent = bench.sent()
        packets += [p for p in sent if p.first != PINGREQ]
        if any(p.first == PINGREQ for p in sent):
            bench.feed(peer.PINGRESP)
        bench.pass_time(50, step=10)
    assert bench.client.connected
    return packets


def answer(bench: VersionBench, packets: list[peer.Packet]) -> None:
    """Answer each SUBSCRIBE."""
    for packet in packets:
        if packet.first >> 4 == SUBSCRIBE:
            bench.feed(peer.suback(packet.pid, 1))


UNSEEN = [1, 3]
HARMLESS = [None, not_made, refused]


# Subscriptions


@pytest.mark.parametrize("times", UNSEEN)
def test_it_subscribes_again_after_a_connack_that_was_not_seen(times: int, make: Make) -> None:
    bench = granted(make)
    bench.lose()
    for _ in range(times):
        unanswered(bench)
    assert kinds(back(bench)) == [SUBSCRIBE]


def test_a_connack_that_does_not_come_in_time_was_not_seen(make: Make) -> None:
    bench = granted(make)
    bench.lose()
    bench.greet()
    bench.pass_time(11_000)
    assert bench.client.error.kind == "timeout"
    assert kinds(back(bench)) == [SUBSCRIBE]


def test_a_connection_that_cannot_be_made_after_it_changes_nothing(make: Make) -> None:
    bench = granted(make)
    bench.lose()
    unanswered(bench)
    not_made(bench)
    refused(bench)
    assert kinds(back(bench)) == [SUBSCRIBE]


@pytest.mark.parametrize("between", HARMLESS, ids=lambda f: f.__name__ if f else "nothing")
def test_a_session_whose_every_connack_was_seen_is_trusted(
    between: Callable | None, make: Make
) -> None:
    bench = granted(make)
    bench.lose()
    if between:
        between(bench)
    assert kinds(back(bench)) == []


def test_after_it_the_session_is_trusted_again(make: Make) -> None:
    bench = granted(make)
    bench.lose()
    unanswered(bench)
    answer(bench, back(bench))
    bench.lose()
    assert kinds(back(bench)) == []


def test_a_request_without_an_answer_is_sent_again(make: Make) -> None:
    """The client distrusted the session, and was cut off before SUBACK."""
    bench = granted(make)
    bench.lose()
    unanswered(bench)
    back(bench)
    bench.lose()
    assert kinds(back(bench)) == [SUBSCRIBE]


# Messages that the client publishes


@pytest.mark.parametrize("times", UNSEEN)
def test_a_message_past_pubrec_is_published_again_after_a_connack_that_was_not_seen(
    times: int, make: Make
) -> None:
    """The session may still be the old one, so the packet is a duplicate with its identifier."""
    bench, pid = past_pubrec(make)
    bench.lose()
    for _ in range(times):
        unanswered(bench)
    (again,) = back(bench)
    message = peer.take_apart(again)
    assert (message.qos, message.pid, message.dup, message.payload) == (2, pid, True, b"x")
    bench.feed(peer.pubrec(pid))
    assert bench.sent() == [(0x62, pid.to_bytes(2, "big"))]
    bench.feed(peer.pubcomp(pid))
    assert (bench.client.pending, bench.client.connected) == (0, True)


@pytest.mark.parametrize("between", HARMLESS, ids=lambda f: f.__name__ if f else "nothing")
def test_a_message_past_pubrec_is_released_if_every_connack_was_seen(
    between: Callable | None, make: Make
) -> None:
    bench, pid = past_pubrec(make)
    bench.lose()
    if between:
        between(bench)
    assert back(bench) == [(0x62, pid.to_bytes(2, "big"))]
    bench.feed(peer.pubcomp(pid))
    assert bench.client.pending == 0


# Messages that come in


def in_doubt(make: Make, got: list[bytes]) -> VersionBench:
    """Return a bench that received a message, and then missed a CONNACK."""
    bench = granted(make, got, qos=2)
    bench.feed(peer.publish(b"t", b"old", 2, 1))
    bench.lose()
    unanswered(bench)
    answer(bench, back(bench))
    return bench


def test_a_message_with_a_known_identifier_is_new_after_a_connack_that_was_not_seen(
    make: Make,
) -> None:
    """The broker counts its packet identifiers from the start in a new session."""
    got: list[bytes] = []
    bench = in_doubt(make, got)
    bench.feed(peer.publish(b"t", b"new", 2, 1))
    assert got == [b"old", b"new"]


@pytest.mark.parametrize("times", [0, *UNSEEN])
def test_a_duplicate_is_not_delivered_whatever_connacks_were_not_seen(
    times: int, make: Make
) -> None:
    got: list[bytes] = []
    bench = granted(make, got, qos=2)
    bench.feed(peer.publish(b"t", b"once", 2, 1))
    bench.lose()
    for _ in range(times):
        unanswered(bench)
    answer(bench, back(bench))
    bench.feed(peer.publish(b"t", b"once", 2, 1, dup=True))
    assert (got, kinds(bench.sent())) == ([b"once"], [PUBREC])


@pytest.mark.parametrize("times", UNSEEN)
def test_nor_if_connections_after_it_end_before_anything_comes(times: int, make: Make) -> None:
    got: list[bytes] = []
    bench = granted(make, got, qos=2)
    bench.feed(peer.publish(b"t", b"once", 2, 1))
    bench.lose()
    unanswered(bench)
    for _ in range(times):
        bench.online(present=True)
        assert kinds(bench.sent()) == [PINGREQ >> 4], "a new session must not get SUBSCRIBE yet"
        bench.lose()
    bench.online(present=True)
    bench.feed(peer.publish(b"t", b"once", 2, 1, dup=True))
    assert got == [b"once"]
    bench.feed(peer.PINGRESP)
    bench.pass_time(50, step=10)
    assert kinds(bench.sent()) == [PINGREQ >> 4, PUBREC, SUBSCRIBE]


def test_what_comes_after_subscribe_may_be_of_another_session_and_is_delivered(
    make: Make,
) -> None:
    """The connection after the lost CONNACK ended too, after SUBSCRIBE."""
    got: list[bytes] = []
    bench = in_doubt(make, got)
    bench.lose()
    unanswered(bench)
    back(bench)
    bench.feed(peer.publish(b"t", b"new", 2, 1, dup=True))
    assert got == [b"old", b"new"]


def test_a_message_past_pubrec_is_not_lost_when_a_broker_forgets_and_the_next_remembers(
    make: Callable[..., VersionBench],
) -> None:
    bench = make(clean_session=False).online()
    pid = bench.client.publish(b"t", b"X", 2)
    bench.drain()
    bench.feed(peer.pubrec(pid))
    bench.outage()
    bench.greet()
    bench.stream.room = 0
    bench.feed(peer.connack())
    bench.outage()  # before the message goes again
    bench.online(present=True)
    bench.drain()
    (packet,) = bench.published()
    assert packet.payload == b"X", "not its release, of which the broker knows nothing"
