"""Every rule that clients most often get wrong, by name, and everything that ends a connection.

What can be said in bytes that come in is in rules.py, and runs on both interpreters. Below it are
the rules of what goes out, and of what outlives a connection.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import peer
from conftest import interpreter_command, library
from flatmq_tools import interpreter
from hostile import rules
from unit.fake_link import Bench, Clock, fake_clock

HERE = Path(__file__).parent


@pytest.fixture
def bench(clock: Clock) -> Bench:
    """A client that is online and has sent nothing but its CONNECT."""
    return Bench(clock).online()


class Inbox(list):
    """A handler that keeps the payloads that it gets."""

    def __call__(self, message) -> None:
        self.append(message.payload)


# What comes in


@pytest.mark.parametrize("way", rules.WAYS)
@pytest.mark.parametrize("name", rules.RULES)
def test_a_rule_of_what_comes_in(name: str, way: str) -> None:
    rules.check(rules.RULES[name], way)


def test_the_rules_of_what_comes_in_on_micropython() -> None:
    done = subprocess.run(
        [*interpreter_command("micropython", "2m"), str(HERE / "rules.py")],
        env=interpreter.environment(library("micropython"), HERE.parent),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["RULES", str(len(rules.RULES))], done.stdout + done.stderr


def test_a_rule_can_fail() -> None:
    wrong = rules.Rule(rules.MESSAGE, ends="protocol")
    with pytest.raises(AssertionError, match="ends: None, not 'protocol'"):
        rules.check(wrong, "at once")


# Packet identifiers run from 1 to 65,535 and round, and skip 0 and those in use


@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifiers_go_round_and_skip_0_and_those_in_use(qos: int, clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.client.subscribe(b"t", print)  # and is not answered
    bench.client.flush()
    taken = bench.sent()[0].pid
    seen = []
    for _ in range(65_600):
        pid = bench.client.publish(b"t", b"", qos)
        assert pid is not None
        seen.append(pid)
        bench.client.flush()
        bench.feed(peer.puback(pid) if qos == 1 else peer.pubrec(pid) + peer.pubcomp(pid))
        bench.stream.written.clear()
    round_and_round = [(seen[0] - 1 + i) % 65_535 + 1 for i in range(65_700)]
    assert seen == [pid for pid in round_and_round if pid != taken][: len(seen)]
    assert {1, 65_535} < set(seen)


def test_a_subscribe_does_not_take_an_identifier_in_flight(clock: Clock) -> None:
    bench = Bench(clock, inflight=1, subscriptions=2, tx_size=1 << 20).online()  # for all of them
    waits = bench.client.publish(b"t", b"stays", 1)
    assert waits is not None
    taken = set()
    for i in range(65_540):
        bench.client.subscribe(b"a" if i % 2 else b"b", print)
        bench.client.flush()
        pid = peer.split(bytes(bench.stream.writes[-1]))[0][-1].pid
        taken.add(pid)
        bench.feed(peer.suback(pid, 0))
        bench.stream.written.clear()
    assert taken == set(range(1, 65_536)) - {waits}


# DUP is 1 on every retransmission, 0 on every first one and at QoS 0


def test_dup_on_what_is_sent_again_in_the_order_of_publishing(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False).online()
    for i, qos in enumerate((1, 2, 0, 2, 1)):
        bench.client.publish(b"t", b"%d" % i, qos)
    bench.client.poll()
    first = bench.published()
    assert [p.dup for p in first] == [False] * 5
    bench.outage()
    bench.online(present=True)
    again = bench.published()
    assert [(p.payload, p.dup) for p in again] == [
        (b"0", True), (b"1", True), (b"3", True), (b"4", True)
    ]  # fmt: skip
    assert [p.pid for p in again] == [p.pid for p in first if p.qos]


def test_no_dup_at_qos_0_when_it_was_cut(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False).online()
    bench.client.publish(b"t", b"cut")
    bench.stream.room = 4
    bench.client.poll()
    bench.outage()
    bench.online(present=True)
    assert [(p.payload, p.dup) for p in bench.published()] == [(b"cut", False)]


def test_pubrel_goes_again_for_a_message_past_pubrec(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False).online()
    pids = [bench.client.publish(b"t", b"%d" % i, 2) for i in range(3)]
    bench.client.poll()
    bench.feed(*[peer.pubrec(pid) for pid in pids[:2]])
    bench.sent()
    bench.outage()
    bench.online(present=True)
    sent = [(p.first, p.pid) for p in bench.sent() if p.first == 0x62]
    assert sent == [(0x62, pid) for pid in pids[:2]]
    bench.feed(*[peer.pubcomp(pid) for pid in pids[:2]])
    assert bench.client.pending == 1


def test_after_the_peer_has_closed_one_at_a_time_and_behind_a_pingresp(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False).online()
    pids = [bench.client.publish(b"t", b"%d" % i, qos) for i, qos in enumerate((2, 1, 2))]
    bench.client.poll()
    bench.feed(peer.pubrec(pids[0]))
    bench.sent()
    bench.lose()
    bench.client.publish(b"t", b"new")
    bench.online(present=True)
    assert bench.sent() == [(0xC0, b"")]
    bench.feed(peer.PINGRESP)
    assert [(p.first, p.pid) for p in bench.sent()] == [(0x62, pids[0])]
    bench.feed(peer.pubcomp(pids[0]))
    for pid, qos, ack in ((pids[1], 1, peer.puback), (pids[2], 2, peer.puback)):
        for packet in bench.sent():
            if packet.first == 0xC0:
                bench.feed(peer.PINGRESP)
            else:
                again = peer.take_apart(packet)
                assert (again.pid, again.qos, again.dup) == (pid, qos, True)
        bench.feed(ack(pid))
    assert [p.payload for p in bench.published()] == [b"new"]
    assert (bench.client.pending, bench.client.stats.downgraded) == (0, 1)


# Session present = 0: the broker has forgotten


def test_subscriptions_go_again_when_the_broker_has_forgotten(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False)
    bench.client.subscribe(b"t", print, 1)
    bench.online()
    bench.feed(peer.suback(bench.sent()[0].pid, 1))
    bench.lose()
    bench.online(present=True)
    assert (bench.sent(), bench.client.session_present) == ([], True)
    bench.lose()
    bench.online(present=False)
    assert [p.body[2:] for p in bench.sent()] == [b"\0\1t\1"]
    assert bench.client.session_present is False


@pytest.mark.parametrize(("present", "times"), [(True, 1), (False, 2)])
def test_a_forgotten_session_forgets_half_done_incoming_messages(
    present: bool, times: int, clock: Clock
) -> None:
    inbox = Inbox()
    bench = Bench(clock, clean_session=False, on_message=inbox).online()
    bench.feed(peer.publish(b"t", b"x", 2, 5))
    bench.lose()
    bench.online(present=present)
    bench.feed(peer.publish(b"t", b"x", 2, 5, dup=True))
    assert len(inbox) == times


@pytest.mark.parametrize(("present", "dup", "renewed"), [(True, True, 0), (False, False, 1)])
def test_an_unacknowledged_publish_goes_again(
    present: bool, dup: bool, renewed: int, clock: Clock
) -> None:
    bench = Bench(clock, clean_session=False).online()
    bench.client.publish(b"t", b"x", 1)
    bench.client.poll()
    bench.sent()
    bench.outage()
    bench.online(present=present)
    assert [p.dup for p in bench.published()] == [dup]
    assert (bench.client.stats.resent, bench.client.stats.renewed) == (1, renewed)


def test_a_qos_2_message_past_pubrec_goes_as_new_to_a_broker_that_has_forgotten(
    clock: Clock,
) -> None:
    bench = Bench(clock, clean_session=False).online()
    pid = bench.client.publish(b"t", b"x", 2)
    bench.client.poll()
    bench.feed(peer.pubrec(pid))
    bench.sent()
    bench.outage()
    bench.online(present=False)
    assert [(p.payload, p.dup, p.pid) for p in bench.published()] == [(b"x", False, pid)]
    assert bench.client.stats.renewed == 1, "the application is notified"


# PINGREQ, and dead links


def ping_times(bench: Bench, ms: int, answered: bool = True) -> list[int]:
    """Return when PINGREQ leaves in the next `ms`, from now on."""
    start = bench.clock.now
    found = []
    while bench.clock.now < start + ms and bench.client.connected:
        bench.clock.now += 10
        bench.client.poll()
        for packet in bench.sent():
            assert packet == (0xC0, b"")
            found.append(bench.clock.now - start)
            if answered:
                bench.feed(peer.PINGRESP)
    return found


@pytest.mark.parametrize("keepalive", [1, 2, 5, 10, 14, 60, 600])
@pytest.mark.parametrize("start", [1000, (1 << 30) - 700])
def test_no_keep_alive_passes_without_a_packet(keepalive: int, start: int) -> None:
    with fake_clock(start) as clock:
        bench = Bench(clock, keepalive=keepalive).online()
        times = ping_times(bench, 5000 * keepalive)
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert len(gaps) >= 5
    assert max(gaps) <= 900 * keepalive, "something is left for the way"
    assert min(gaps) >= 700 * keepalive, "nor is it more than is needed"
    assert bench.client.connected


@pytest.mark.parametrize("start", [1000, (1 << 30) - 47_000])
def test_a_dead_link_is_found(start: int) -> None:
    with fake_clock(start) as clock:
        bench = Bench(clock, keepalive=60, timeout=10).online()
        assert ping_times(bench, 90_000, answered=False) == [45_000]
        assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
        assert clock.now - start == pytest.approx(55_000, abs=200)


# Acknowledgements


@pytest.mark.parametrize(
    "packet",
    [peer.puback(9), peer.pubrec(9), peer.pubcomp(9), peer.suback(9, 0), peer.unsuback(9)],
    ids=["PUBACK", "PUBREC", "PUBCOMP", "SUBACK", "UNSUBACK"],
)
def test_an_acknowledgement_of_nothing_is_ignored_and_counted(packet: bytes, bench: Bench) -> None:
    bench.feed(packet)
    assert (bench.client.error, bench.client.stats.strays, bench.sent()) == (None, 1, [])


def test_a_pubrel_of_nothing_is_answered(bench: Bench) -> None:
    bench.feed(peer.pubrel(9))
    assert bench.sent() == [(0x70, b"\0\x09")]


def test_the_steps_of_qos_2(bench: Bench) -> None:
    pid = bench.client.publish(b"t", b"", 2)
    bench.client.poll()
    bench.sent()
    for _ in range(2):
        bench.feed(peer.pubrec(pid))
        assert bench.sent() == [(0x62, pid.to_bytes(2, "big"))]
        assert bench.client.pending == 1
    bench.feed(peer.pubcomp(pid))
    assert (bench.client.pending, bench.client.stats.strays) == (0, 0)


# SUBACK


def test_suback_tells_what_is_granted(bench: Bench) -> None:
    subscription = bench.client.subscribe([b"a", b"b", b"c"], print, 2)
    assert subscription.granted is None
    bench.client.poll()
    (subscribe,) = bench.sent()
    assert subscribe.body[2:] == b"\0\1a\2\0\1b\2\0\1c\2"
    bench.feed(peer.suback(subscribe.pid, 2, 0x80, 0))
    assert subscription.granted == b"\2\x80\0"
    assert (bench.client.error, bench.client.connected) == (None, True)


def test_a_publish_before_the_suback_is_ordinary(bench: Bench) -> None:
    inbox = Inbox()
    bench.client.subscribe(b"t", inbox)
    bench.client.poll()
    bench.feed(peer.publish(b"t", b"1"), peer.suback(bench.sent()[0].pid, 0))
    assert len(inbox) == 1


@pytest.mark.parametrize("codes", [[3], [], [0, 0]])
def test_a_suback_that_breaks_a_rule_answers_nothing(codes: list, clock: Clock) -> None:
    """The subscription is asked for again on the next connection, to a session that is kept."""
    bench = Bench(clock, clean_session=False)
    subscription = bench.client.subscribe(b"t", print)
    bench.online()
    bench.feed(peer.suback(bench.sent()[0].pid, *codes))
    assert (bench.client.error.kind, subscription.granted) == ("protocol", None)
    assert bench.client.stats.strays == 0
    bench.online(present=True)
    assert [p.body[2:] for p in bench.sent()] == [b"\0\1t\0"]
