"""Topic aliases end with their connection: the next one has all of them again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.fake_link import Bench, fake_clock

CONNACK = b"\x20\x06\0\0\3\x22\0\2"  # Topic Alias Maximum is 2
FULL = b"\x30\x0e\0\3a/b\3\x23\0\1-1500"
SHORT = b"\x30\x0b\0\0\3\x23\0\1-1500"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with fake_clock() as clock:
        yield Bench(clock, version=5)


def online(bench: Bench) -> None:
    bench.greet()
    bench.feed(CONNACK)
    assert bench.client.connected


def take(bench: Bench) -> bytes:
    """Return what was written since CONNECT."""
    bench.client.poll()
    return b"".join(bench.stream.writes[1:])


@pytest.mark.parametrize("way", ["lose", "outage", "disconnect"])
def test_each_connection_begins_with_the_first_number(bench: Bench, way: str) -> None:
    online(bench)
    alias = bench.client.alias(b"a/b")
    for _ in range(4):
        alias.publish(b"-1500")
        alias.publish(b"-1500")
        assert take(bench) == FULL + SHORT
        if way == "disconnect":
            bench.stream.ended = True
            bench.client.disconnect()
        else:
            getattr(bench, way)()
        online(bench)


def test_what_disconnect_has_left_does_not_go_with_an_alias(bench: Bench) -> None:
    dropped = []
    bench.client.on_dropped = lambda *what: dropped.append(what)
    online(bench)
    alias = bench.client.alias(b"a/b")
    alias.publish(b"-1500")
    assert take(bench) == FULL
    bench.stream.room = 0
    alias.publish(b"-1500")
    bench.client.publish(b"a/b", b"whole")
    assert not bench.client.disconnect(0)
    online(bench)
    assert take(bench) == b"\x30\x0b\0\3a/b\0whole"
    assert dropped == [(0, b"", "its topic alias ended with the connection")]
    assert bench.client.pending == 0
