"""Crashes: what is kept, and that it is published until it is acknowledged."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import peer
from flatmq import crash
from packets.properties import Id
from unit.both_versions import VersionBench
from unit.fake_link import Clock
from unit.short import Short
from v5.clients5 import Bench5

TOPIC = b"dev/pico-1/crash"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a board that has just started."""
    monkeypatch.setattr(crash, "_kept", None)
    monkeypatch.setattr(crash, "_reporter", None)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "crash.json")


def fail(text: str = "the pool is empty", depth: int = 0) -> None:
    if depth:
        fail(text, depth - 1)
    raise ValueError(text)


def kept(path: str, *arguments: Any) -> bool:
    """Keep what `fail` raises."""
    try:
        fail(*arguments)
    except ValueError as error:
        return crash.keep(error, path)


def record(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def published(bench: VersionBench) -> list[Any]:
    """Return the PUBLISH packets; each must be retained, at QoS 1 and to the topic."""
    packets = bench.published()
    assert all((p.topic, p.qos, p.retain) == (TOPIC, 1, True) for p in packets)
    return packets


def turn(bench: VersionBench, crashes: crash.Crashes) -> None:
    crashes.poll()
    bench.client.flush()


def test_the_traceback_the_version_and_the_time_are_kept(path: str) -> None:
    assert kept(path)
    found = record(path)
    assert found["trace"].startswith("Traceback (most recent call last):\n")
    assert "test_crash.py" in found["trace"]
    assert found["trace"].endswith("\nValueError: the pool is empty")
    assert (found["cause"], found["count"]) == ("exception", 1)
    assert found["version"].startswith("flatmq ")
    assert found["time"] > 1_700_000_000


def test_of_a_long_traceback_the_head_and_the_innermost_frames_are_kept(path: str) -> None:
    def innermost() -> None:
        deep(30)

    def deep(n: int) -> None:
        return deep(n - 1) if n & 1 else shallow(n)

    def shallow(n: int) -> None:
        return deep(n - 1) if n else fail()

    try:
        innermost()
    except ValueError as error:
        crash.keep(error, path)
    trace = record(path)["trace"]
    assert len(trace) <= 1000
    assert trace.startswith("Traceback (most recent call last):\n  ...\n  ")
    assert "in fail\n" in trace
    assert "in innermost" not in trace
    assert trace.endswith("\nValueError: the pool is empty")


def test_a_long_exception_leaves_room_for_the_frames(path: str) -> None:
    kept(path, "long" * 5000)
    trace = record(path)["trace"]
    assert len(trace) <= 1000
    assert "in fail\n" in trace
    assert "\nValueError: longlong" in trace


def test_only_printable_ascii_leaves_the_board(path: str) -> None:
    kept(path, "red \x1b[31m, \0 and Grüße")
    assert record(path)["trace"].endswith("ValueError: red ?[31m, ? and Gr????e")


def test_an_exception_that_cannot_be_printed_is_named(path: str) -> None:
    class Silent(ValueError):
        def __str__(self) -> str:
            raise RuntimeError

    crash.keep(Silent(), path)
    assert "Silent" in record(path)["trace"]


def test_two_crashes_before_a_connection(path: str) -> None:
    kept(path, "one")
    kept(path, "two")
    found = record(path)
    assert found["trace"].endswith("two")
    assert found["count"] == 2


def test_the_same_exception_is_kept_once(path: str) -> None:
    """It may pass through several places that keep what they catch."""
    error = ValueError("x")
    assert crash.keep(error, path) and crash.keep(error, path)
    assert record(path)["count"] == 1


def test_no_place_for_the_record_raises_nothing(tmp_path: Path) -> None:
    assert not kept(str(tmp_path / "no-folder" / "crash.json"))


def test_it_is_published_once_and_removed_when_acknowledged(path: str, make: Callable) -> None:
    kept(path)
    bench = make()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    crashes.poll()
    bench.online()
    assert bench.sent() == []
    for _ in range(3):
        turn(bench, crashes)
    (message,) = published(bench)
    assert json.loads(message.payload) == record(path)
    bench.feed(peer.puback(message.pid))
    assert Path(path).exists()
    turn(bench, crashes)
    assert not Path(path).exists()
    assert published(bench) == []


def comes_again(bench: VersionBench, crashes: crash.Crashes, first: Any, path: str) -> None:
    """The record is published once more, and removed once that is acknowledged."""
    (again,) = published(bench)
    assert again.payload == first.payload
    bench.feed(peer.puback(again.pid))
    turn(bench, crashes)
    assert not Path(path).exists()


def test_a_lost_connection_is_left_to_the_client(path: str, make: Callable) -> None:
    kept(path)
    bench = make(retry_ms=1).online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    turn(bench, crashes)
    (first,) = published(bench)
    bench.outage()
    turn(bench, crashes)
    bench.online(present=False)
    turn(bench, crashes)
    comes_again(bench, crashes, first, path)


def test_a_record_that_was_set_aside_is_kept_and_published_again(
    path: str, make: Callable
) -> None:
    """After a minute: a broker that refuses it is not asked all the time."""
    kept(path)
    dropped: list[Any] = []
    bench = make(on_dropped=lambda *given: dropped.append(given[1])).online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    turn(bench, crashes)
    (first,) = published(bench)
    bench.client.drop(first.pid)
    for _ in range(3):
        turn(bench, crashes)
    assert dropped == [TOPIC]
    assert published(bench) == []
    assert record(path)["count"] == 1
    bench.feed(peer.puback(first.pid))  # too late
    bench.clock.now += 60_000
    turn(bench, crashes)
    comes_again(bench, crashes, first, path)


def test_a_broker_without_acknowledgements_has_it_all_the_same(path: str, clock: Clock) -> None:
    """It is removed once it has left."""
    kept(path)
    bench = Bench5(clock).accepted((Id.MAXIMUM_QOS, 0))
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    crashes.poll()
    crashes.poll()
    assert Path(path).exists()
    for _ in range(9):
        turn(bench, crashes)  # type: ignore[arg-type]
    (message,) = [p for p in bench.packets() if p.name == "PUBLISH"]
    assert (message.retain, message.qos) == (True, 0)
    assert not Path(path).exists()


def test_a_crash_meanwhile_replaces_the_one_that_is_on_its_way(path: str, make: Callable) -> None:
    """An exception that the program goes on after. The acknowledgement of the first is not its."""
    kept(path, "one")
    bench = make().online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    turn(bench, crashes)
    (first,) = published(bench)
    kept(path, "two")
    bench.feed(peer.puback(first.pid))
    turn(bench, crashes)
    (second,) = published(bench)
    assert json.loads(second.payload)["trace"].endswith("two")
    assert json.loads(second.payload)["count"] == 2
    bench.feed(peer.puback(second.pid))
    turn(bench, crashes)
    assert not Path(path).exists()


def test_no_room_in_the_queue_is_waited_for(path: str, make: Callable) -> None:
    kept(path)
    bench = make(inflight=1).online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    pid = bench.client.publish(b"t", b"", 1)
    turn(bench, crashes)
    assert [p.topic for p in bench.published()] == [b"t"]
    bench.feed(peer.puback(pid))
    turn(bench, crashes)
    assert len(published(bench)) == 1


@pytest.mark.parametrize("room", [500, 1024])
def test_a_small_queue_gets_a_shorter_traceback(room: int, path: str, make: Callable) -> None:
    """No shorter than needed."""
    frames = "".join(f'  File "greenhouse.py", line {n}, in read\n' for n in range(30))
    trace = f"Traceback (most recent call last):\n{frames}ValueError: x"
    Path(path).write_text(json.dumps({"cause": "exception", "trace": trace, "count": 1}))
    bench = make(tx_size=room).online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    for _ in range(30):
        turn(bench, crashes)
    (message,) = published(bench)
    assert room * 3 // 4 < len(message.payload) < room
    found = json.loads(message.payload)["trace"]
    assert found.startswith("Traceback (most recent call last):\n  ...\n  File")
    assert found.endswith("line 29, in read\nValueError: x")


def test_a_broker_without_retained_messages_has_it_all_the_same(path: str, clock: Clock) -> None:
    """A ValueError at each start would reset a guarded board for ever."""
    kept(path)
    bench = Bench5(clock).accepted((Id.RETAIN_AVAILABLE, 0))
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    for _ in range(9):
        turn(bench, crashes)  # type: ignore[arg-type]
    (message,) = [p for p in bench.packets() if p.name == "PUBLISH"]
    assert (message.retain, message.qos) == (False, 1)
    assert json.loads(message.payload) == record(path)


def test_a_topic_that_is_not_valid_is_an_error(path: str, make: Callable) -> None:
    kept(path)
    bench = make().online()
    crashes = crash.Crashes(bench.client, b"dev/+/crash", path=path)
    with pytest.raises(ValueError, match="wildcard"):
        for _ in range(9):
            turn(bench, crashes)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"a":', "\0\xff", "[" * 3000, '{"a":"%s"}' % ("x" * 9000)]
)
def test_a_file_that_is_no_record_is_removed(
    text: str, path: str, make: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(path).write_text(text)
    bench = make().online()
    turn(bench, crash.Crashes(bench.client, TOPIC, path=path))
    assert published(bench) == []
    assert not Path(path).exists()
    assert capsys.readouterr().out.startswith(f"{path} is damaged")


def test_a_record_that_cannot_be_read_once_stays(
    path: str, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`poll` tries again in a minute. A later crash replaces it."""
    kept(path)
    b = make().online()
    with monkeypatch.context() as patch:
        Short(patch, crash.json, "load", error=OSError(errno.EIO, "read"))
        crashes = crash.Crashes(b.client, TOPIC, watchdog=True, path=path)
        b.clock.now += 60_000
        turn(b, crashes)
    assert published(b) == []
    b.clock.now += 60_000
    turn(b, crashes)
    (message,) = published(b)
    assert json.loads(message.payload)["trace"].endswith("the pool is empty")
    Short(monkeypatch, crash.json, "load", error=OSError(errno.EIO, "read"))
    assert kept(path, "two")
    assert "two" in Path(path).read_text()


def test_a_record_of_a_later_version_is_published_as_it_is(path: str, make: Callable) -> None:
    later = {"format": 9, "count": "many", "frames": [{"line": 3}]}
    Path(path).write_text(json.dumps(later))
    bench = make().online()
    turn(bench, crash.Crashes(bench.client, TOPIC, path=path))
    (message,) = published(bench)
    assert json.loads(message.payload) == later
    kept(path)  # and it can be counted on
    assert record(path)["count"] == 1


@pytest.mark.parametrize(
    "later",
    [{"frames": "x" * 3000}, {"trace": [], "x": "x" * 3000}, {"trace": "", "x": "x" * 3000}],
)
def test_a_large_record_of_a_later_version_is_shortened(
    later: dict[str, Any], path: str, make: Callable
) -> None:
    """It must not end the program with each start."""
    Path(path).write_text(json.dumps(later))
    bench = make().online()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    for _ in range(30):
        turn(bench, crashes)
    (message,) = published(bench)
    assert "xxx" in json.loads(message.payload)["trace"]


def test_a_reset_by_the_watchdog(path: str, make: Callable) -> None:
    bench = make().online()
    turn(bench, crash.Crashes(bench.client, TOPIC, watchdog=True, path=path))
    (message,) = published(bench)
    found = json.loads(message.payload)
    assert (found["cause"], found["count"]) == ("watchdog", 1)
    assert "trace" not in found
    assert record(path) == found  # a power cut now loses nothing
    kept(path)  # what is known of an exception is worth more
    bench = make().online()
    turn(bench, crash.Crashes(bench.client, TOPIC, watchdog=True, path=path))
    assert json.loads(published(bench)[0].payload)["cause"] == "exception"


def test_a_reset_by_the_watchdog_is_published_from_a_full_flash(
    tmp_path: Path, make: Callable
) -> None:
    bench = make().online()
    path = str(tmp_path / "no-folder" / "crash.json")
    turn(bench, crash.Crashes(bench.client, TOPIC, watchdog=True, path=path))
    assert json.loads(published(bench)[0].payload)["cause"] == "watchdog"


def test_the_uptime_is_that_of_the_program(path: str, make: Callable) -> None:
    """Over the wrap of the clock of a board, after 12 days."""
    bench = make()
    crashes = crash.Crashes(bench.client, TOPIC, path=path)
    for _ in range(20 * 24):
        bench.clock.now += 3_600_000
        crashes.poll()
    bench.clock.now += 1500
    kept(path)
    assert record(path)["uptime"] == 20 * 86400 + 1


class Reset(BaseException):
    """The board is reset."""


@pytest.fixture
def naps(path: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of `guard`, on a board."""

    def reset() -> None:
        raise Reset

    seen: list[float] = []
    monkeypatch.setitem(sys.modules, "machine", SimpleNamespace(reset=reset))  # type: ignore[arg-type]
    # Only its own: other threads sleep, too.
    mine = SimpleNamespace(sleep=seen.append, time=time.time, gmtime=time.gmtime)
    monkeypatch.setattr(crash, "time", mine)
    monkeypatch.setattr(crash, "PATH", "not used")
    monkeypatch.setattr(crash.keep, "__defaults__", (path,))
    return seen


def test_a_guarded_program_is_kept_printed_and_reset(
    path: str, naps: list[float], capsys: Any
) -> None:
    with pytest.raises(Reset):
        crash.guard(fail)
    assert naps == [5]
    assert record(path)["trace"].endswith("ValueError: the pool is empty")
    printed = capsys.readouterr()
    assert "ValueError: the pool is empty" in printed.out + printed.err
    assert "reset in 5 s; Ctrl-C stops that" in printed.out


def test_a_task_that_was_cancelled_resets_the_board(path: str, naps: list[float]) -> None:
    """Its CancelledError is no Exception."""

    async def program() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    with pytest.raises(Reset):
        crash.guard(lambda: asyncio.run(program()))
    assert "CancelledError" in record(path)["trace"]


def test_an_exception_that_cannot_be_printed_resets_the_board(
    path: str, naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MicroPython raises what its `__repr__` does."""
    Short(monkeypatch, crash, "print_exception", error=RuntimeError())
    with pytest.raises(Reset):
        crash.guard(fail)
    assert record(path)["trace"] == "ValueError"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_and_sys_exit_are_no_crash(
    error: type[BaseException], path: str, naps: list[float]
) -> None:
    def program() -> None:
        raise error

    with pytest.raises(error):
        crash.guard(program)
    assert not Path(path).exists()
    assert naps == []


def test_ctrl_c_in_the_pause_leads_to_the_prompt(
    naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crash.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        crash.guard(fail)


def test_a_guarded_program_returns_what_it_returns(naps: list[float]) -> None:
    assert crash.guard(lambda: 7) == 7


def test_a_record_that_is_shortened_without_memory_stays(
    path: str, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(path, "long " * 60, 20)
    b = make(tx_size=300)
    crashes = crash.Crashes(b.client, TOPIC, path=path)
    b.online()
    Short(monkeypatch, crash.json, "dumps")
    with pytest.raises(MemoryError):
        turn(b, crashes)
    for _ in range(20):
        turn(b, crashes)
    assert len(published(b)) == 1


def test_a_record_is_removed_later_if_there_is_no_memory_for_that(
    path: str, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be published again after the next reset."""
    kept(path)
    b = make()
    crashes = crash.Crashes(b.client, TOPIC, path=path)
    b.online()
    turn(b, crashes)
    (packet,) = published(b)
    b.feed(peer.puback(packet.pid))
    Short(monkeypatch, crash.os, "remove")
    with pytest.raises(MemoryError):
        turn(b, crashes)
    turn(b, crashes)
    assert not Path(path).exists()


def test_a_record_that_was_kept_without_memory_to_pass_it_on(
    path: str, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program goes on: `poll` raises nothing, and tries once a minute."""
    b = make()
    crashes = crash.Crashes(b.client, TOPIC, path=path)
    b.online()
    turn(b, crashes)
    short = Short(monkeypatch, crashes, "take", 1, 2)
    assert kept(path)
    for _ in range(2):
        assert published(b) == []
        b.clock.now += 60_000
        turn(b, crashes)
    assert short.calls == 3
    assert crashes.reserve is not None
    assert len(published(b)) == 1


@pytest.mark.parametrize("n", [1, 2])
def test_a_record_that_there_is_no_memory_to_read_is_read_later(
    n: int, path: str, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(path)
    Short(monkeypatch, crash.json, "load", *range(1, n + 1))
    b = make().online()
    crashes = crash.Crashes(b.client, TOPIC, path=path)
    turn(b, crashes)
    if n == 2:
        assert published(b) == []
        b.clock.now += 60_000
        turn(b, crashes)
    assert len(published(b)) == 1
