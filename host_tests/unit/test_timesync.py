"""The clock is set by a request and its answer."""

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import peer
from flatmq import timesync
from flatmq.timesync import TimeSync
from unit.both_versions import VersionBench
from unit.short import Short

TOPIC = b"dev/pico-1/time"
NOON = 1_772_366_400  # 2026-03-01 12:00 UTC


class Bench:
    """A board whose clock is set; `set` has the seconds, and the milliseconds of its ticks."""

    def __init__(self, make: Callable, **options: Any) -> None:
        self.bench: VersionBench = make(keepalive=0)
        self.set: list[tuple[int, int]] = []
        self.sync = TimeSync(
            self.bench.client,
            TOPIC,
            set=lambda seconds: self.set.append((seconds, self.bench.clock.now)),
            **options,
        )
        assert self.asked() == []
        self.bench.online()
        self.bench.client.flush()
        (subscribe,) = self.bench.sent()
        self.bench.feed(peer.suback(int.from_bytes(subscribe.body[:2], "big"), 0))

    def asked(self, ms: int = 0) -> list[bytes]:
        """Let time pass in turns of 20 ms; return the requests."""
        found = []
        for _ in range(max(1, ms // 20)):
            self.bench.clock.now += 20 if ms else 0
            self.sync.poll()
            if self.bench.link.made:
                self.bench.client.flush()
                found += self.bench.published()
        assert all((p.topic, p.qos, p.retain) == (TOPIC + b"/get", 0, False) for p in found)
        return [p.payload for p in found]

    def answer(self, number: bytes, seconds: int, ms: int = 0, retain: bool = False) -> None:
        self.bench.feed(peer.publish(TOPIC, b"%b %d %d" % (number, seconds, ms), retain=retain))


@pytest.fixture
def b(make: Callable) -> Bench:
    return Bench(make)


@pytest.mark.parametrize("ms", [0, 1, 499, 750, 999])
def test_half_of_the_time_is_added_and_the_clock_set_at_a_second(ms: int, b: Bench) -> None:
    (number,) = b.asked()
    b.bench.clock.now += 300
    b.answer(number, NOON, ms)
    now = b.bench.clock.now
    assert b.asked(1200) == []
    ((seconds, at),) = b.set
    # It is NOON + ms + 150 at `now`.
    assert 0 <= (at - now + ms + 150) - 1000 * (seconds - NOON) <= 20
    assert (b.sync.answers, b.sync.late, b.sync.took) == (1, 0, 300)


def test_a_busy_board_sets_the_second_that_it_is(b: Bench) -> None:
    (number,) = b.asked()
    b.answer(number, NOON)
    b.bench.clock.now += 7010
    b.asked()
    assert [seconds for seconds, _ in b.set] == [NOON + 7]


def test_an_answer_that_took_too_long_is_not_used(make: Callable) -> None:
    b = Bench(make, limit_ms=200)
    (number,) = b.asked()
    b.bench.clock.now += 201
    b.answer(number, NOON)
    (again,) = b.asked(15_000)
    assert again != number
    assert (b.set, b.sync.late, b.sync.answers) == ([], 1, 0)
    b.answer(again, NOON)
    b.asked(2000)
    assert len(b.set) == 1


def test_it_asks_until_it_is_answered_and_then_each_hour(b: Bench) -> None:
    assert len(b.asked(46_000)) == 4
    (number,) = b.asked(15_000)
    b.answer(number, NOON)
    assert b.asked(3_590_000) == []
    assert len(b.asked(15_000)) == 1


@pytest.mark.parametrize("payload", [
    *(b"", b"1", b"{n} {t}", b"{n} x 0", b"\xff", b"{n} 1e9 0", b"{n} {t} -1"),
    b"{n} {t} 1000",
    b"{n} 4294967296 0",  # boards raise for it, or worse
    b"{n} 9223372036854775807 0",
])  # fmt: skip
def test_what_is_no_answer_is_ignored(payload: bytes, b: Bench) -> None:
    (number,) = b.asked()
    text = payload.replace(b"{n}", number).replace(b"{t}", b"%d" % NOON)
    b.bench.feed(peer.publish(TOPIC, text))
    b.asked(2000)
    assert (b.set, b.sync.answers, b.sync.late) == ([], 0, 0)


def test_only_the_answer_to_the_request_is_used(b: Bench) -> None:
    b.answer(b"0", NOON)
    (number,) = b.asked()
    b.answer(b"%d" % (int(number) + 1), NOON)
    b.answer(number, NOON, retain=True)
    b.answer(number, 946684800)  # the clock of the host was not set
    assert b.sync.answers == 0
    b.answer(number, NOON)
    b.answer(number, NOON + 5)  # of a second host
    b.asked(2000)
    assert [seconds - NOON for seconds, _ in b.set] == [1]


@pytest.mark.parametrize("every", [59, 86401])
def test_a_time_out_of_range_is_an_error(every: int, make: Callable) -> None:
    with pytest.raises(ValueError, match=f"every must be 60 to 86400, not {every}"):
        TimeSync(make().client, TOPIC, every)


@pytest.mark.parametrize("epoch", [1970, 2000])
def test_the_clock_of_a_board(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ports count from 2000."""
    seen: list[tuple[int, ...]] = []
    shift = 946684800 if epoch == 2000 else 0
    board = SimpleNamespace(gmtime=lambda seconds: time.gmtime(seconds + shift))
    monkeypatch.setattr(timesync, "time", board)
    machine = SimpleNamespace(RTC=lambda: SimpleNamespace(datetime=seen.append))
    monkeypatch.setitem(sys.modules, "machine", machine)  # type: ignore[arg-type]
    timesync.set_clock(NOON + 3661)
    assert seen == [(2026, 3, 1, 7, 13, 1, 1, 0)]


def test_without_memory_for_an_answer_it_is_used_a_little_later(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client calls the handler again; on a board a time takes memory."""
    (number,) = b.asked()
    Short(monkeypatch, timesync, "ticks_add")
    with pytest.raises(MemoryError):
        b.answer(number, NOON)
    b.bench.client.poll()
    b.asked(2000)
    assert [seconds - NOON for seconds, _ in b.set] == [1]
    assert b.sync.answers == 1


def test_a_clock_that_cannot_be_set_is_asked_for_again(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = b.asked()
    b.answer(number, NOON)
    with monkeypatch.context() as patch:
        Short(patch, b.sync, "_set", error=OSError())
        for _ in range(2):
            with pytest.raises(OSError):
                b.asked(2000)
        b.bench.clock.now += 3_600_000
        (number,) = b.asked()
        b.answer(number, NOON + 3600)
    b.asked(2000)
    assert [seconds - NOON for seconds, _ in b.set] == [3601]


def test_without_memory_the_clock_is_set_at_the_next_second(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = b.asked()
    b.answer(number, NOON)
    at = b.bench.clock.now
    Short(monkeypatch, b.sync, "_set")
    with pytest.raises(MemoryError):
        b.asked(2000)
    b.asked(2000)
    assert b.set == [(NOON + 2, at + 2000)]
