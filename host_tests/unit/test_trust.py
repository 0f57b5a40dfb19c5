"""A session that the broker says it has is trusted only if the client saw it being made.

The broker may lose the session while the client is away. The CONNACK that says so may be lost too,
and the next one then speaks of the session that was made in between, which is empty. The oracle of
../hostile has the rule for every packet; here are the tries that come to no session.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import peer
from unit.both_versions import VersionBench

SUBSCRIBE = 0x82
PUBREL = 0x62

Make = Callable[..., VersionBench]


def away(make: Make) -> tuple[VersionBench, int]:
    """Return a client that has lost its connection, and a packet identifier.

    Its subscription has been granted, and the message with that identifier is past PUBREC.
    """
    bench = make(clean_session=False).online()
    bench.client.subscribe(b"t", print, qos=1)
    pid = bench.client.publish(b"t", b"x", 2)
    bench.client.poll()
    (request,) = (p for p in bench.sent() if p.first == SUBSCRIBE)
    bench.feed(peer.suback(request.pid, 1), peer.pubrec(pid))
    assert bench.sent() == [(PUBREL, pid.to_bytes(2, "big"))]
    bench.outage()
    return bench, pid


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


@pytest.mark.parametrize(
    "between", [None, not_made, refused], ids=["nothing", "not made", "refused"]
)
def test_a_session_whose_every_connack_was_seen_is_trusted(
    between: Callable | None, make: Make
) -> None:
    bench, pid = away(make)
    if between:
        between(bench)
    bench.online(present=True)
    assert bench.sent() == [(PUBREL, pid.to_bytes(2, "big"))]
    bench.feed(peer.pubcomp(pid))
    assert bench.client.pending == 0


def test_one_whose_connack_was_not_seen_is_not_whatever_comes_after_it(make: Make) -> None:
    bench, pid = away(make)
    bench.greet()
    bench.outage()
    not_made(bench)
    refused(bench)
    bench.online(present=True)
    bench.pass_time(50, step=10)
    sent = bench.sent()
    assert [peer.take_apart(p).pid for p in sent if p.first == 0x3C] == [pid]
    assert SUBSCRIBE in [p.first for p in sent]


def test_a_message_past_pubrec_is_not_lost_when_a_broker_forgets_and_the_next_remembers(
    make: Make,
) -> None:
    bench, _ = away(make)
    bench.greet()
    bench.stream.room = 0
    bench.feed(peer.connack())
    bench.outage()  # before the message goes again
    bench.online(present=True)
    bench.drain()
    messages = [peer.take_apart(p) for p in bench.sent() if p.first >> 4 == 3]
    assert [m.payload for m in messages] == [b"x"], "not its release, of which it knows nothing"
