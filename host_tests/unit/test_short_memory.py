"""A client that cannot load code when its connection ends: nothing is lost, and it tries again."""

from __future__ import annotations

import sys

import pytest

import peer
from unit.fake_link import Bench, Clock


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch):
    """Modules of the client that cannot be loaded while this is a set with their names."""
    real = __import__
    missing: set[str] = set()

    def load(name, globals=None, locals=None, fromlist=(), level=0):
        if name in missing and level:
            raise MemoryError(f"memory allocation failed for {name}")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr("builtins.__import__", load)
    for name in ("resend", "show"):
        monkeypatch.delitem(sys.modules, f"flatmq.{name}", raising=False)
    return missing


@pytest.mark.parametrize("module", ["resend", "show"])
def test_what_was_accepted_is_sent_once_there_is_memory(
    module: str, short: set[str], clock: Clock
) -> None:
    bench = Bench(clock, clean_session=False).online()
    pid = bench.client.publish(b"t", b"kept", 1)
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"kept"]
    short.add(module)
    bench.outage()
    assert bench.client.error is not None
    assert bench.client.error.kind == "resource"
    assert bench.client.pending == 1
    short.clear()
    bench.online(present=True)
    bench.client.poll()
    (again,) = bench.published()
    assert (again.dup, again.pid, again.payload) == (True, pid, b"kept")
    bench.feed(peer.puback(pid))
    assert bench.client.pending == 0


def test_a_connection_that_cannot_be_made_is_tried_again(short: set[str], clock: Clock) -> None:
    bench = Bench(clock)
    bench.link.fails = "connect"
    short.add("show")
    bench.client.start()
    for _ in range(5):
        bench.pass_time(1000)
    assert bench.client.stats.losses > 1
    assert bench.client.error is not None
    assert bench.client.error.kind == "resource"
    bench.link.fails = ""
    short.clear()
    for _ in range(200):
        if bench.client.state == "greeting":
            break
        bench.pass_time(500)
    assert bench.client.state == "greeting"
