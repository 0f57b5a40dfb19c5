"""The clock of a board wraps in 12 days: a client that nobody polls for days goes on at once.

Half of that after it was to come, a time looks like one in the future.
"""

from collections.abc import Callable

import pytest

import peer
from flatmq.every import Every
from flatmq.log import Log
from flatmq.timesync import TimeSync
from unit.both_versions import VersionBench
from unit.fake_link import Clock

DAY = 86_400_000
DAYS = [1, 7, 9.5, 12, 13, 20]

pytestmark = pytest.mark.parametrize("days", DAYS)


def waiting(bench: VersionBench) -> None:
    bench.link.fails = "connect"
    bench.client.start()
    bench.pass_time(1000)
    assert bench.client.state == "waiting"
    bench.link.fails = ""


def connecting(bench: VersionBench) -> None:
    bench.link.slow = 1_000_000
    bench.client.start()
    bench.pass_time(100)
    assert bench.client.state == "connecting"


@pytest.mark.parametrize("before", [waiting, connecting, VersionBench.greet, VersionBench.online])
def test_a_client(
    before: Callable[[VersionBench], None], days: float, clock: Clock, make: Callable
) -> None:
    bench = make(retry_max_ms=1000)
    before(bench)
    bench.link.calls.clear()
    clock.now += int(days * DAY)
    bench.pass_time(22_000)
    assert "connect" in bench.link.calls, bench.client.state


def test_every(days: float, clock: Clock) -> None:
    every = Every(60_000)
    assert every.due()
    clock.now += int(days * DAY)
    assert [every.due(), every.due()] == [True, False]
    clock.now += 60_000
    assert [every.due(), every.due()] == [True, False]


def test_a_log(days: float, clock: Clock, make: Callable) -> None:
    bench = make(keepalive=0)
    log = Log(bench.client, b"log", 64)
    bench.online()
    (request,) = [p for p in bench.sent() if p.first == 0x82]
    bench.feed(peer.suback(request.pid, 0))
    clock.now += int(days * DAY)
    bench.feed(peer.publish(b"log/listen", b"30"))
    log.write(b"text")
    log.poll()
    bench.client.poll()
    assert [peer.take_apart(p).topic for p in bench.sent() if p.first >> 4 == 3] == [b"log"]


def test_the_time(days: float, clock: Clock, make: Callable) -> None:
    bench = make()
    sync = TimeSync(bench.client, b"time")
    clock.now += int(days * DAY)
    bench.online()
    sync.poll()
    bench.client.poll()
    assert [p.first >> 4 for p in bench.sent()] == [8, 3]
