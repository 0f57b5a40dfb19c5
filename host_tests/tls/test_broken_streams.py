"""A TLS stream that is broken anywhere costs a connection, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flatmq_rigs.proxy import UP
from tls import broken_streams
from tls.broken_streams import WAYS, Spoiler
from tls.secure_broker import PYTHONS, SecureBroker

STREAMS = 48
SEED = 5
DATA = bytes(range(1, 256)) * 20


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    running = SecureBroker()
    yield running
    running.stop()


def test_broken_streams_end_and_nothing_is_lost(broker: SecureBroker) -> None:
    counts = broken_streams.play_all(broker, STREAMS, SEED)
    for python in PYTHONS:
        assert counts[python]["streams"] >= STREAMS // 2
        assert counts[python]["changed"] > STREAMS // 4, counts


def test_the_same_streams_without_tls_are_found(broker: SecureBroker) -> None:
    """A message that was changed, or an error that the other side's MQTT made of it."""
    with pytest.raises(broken_streams.Broken, match=r"@wrong|protocol"):
        broken_streams.play(broker, broken_streams.PLAIN, 200, "plain")


def spoilt(seed: int, size: int) -> tuple[Spoiler, bytes]:
    """Return what a Spoiler of that seed makes of DATA that comes in chunks of that size."""
    spoiler = Spoiler(random.Random(seed), UP)
    chunks = [DATA[at : at + size] for at in range(0, len(DATA), size)]
    return spoiler, b"".join(map(spoiler, chunks))


def test_a_change_is_where_it_should_be_and_the_same_for_the_same_seed() -> None:
    names = set()
    for seed in range(200):
        spoiler, changed = spoilt(seed, len(DATA))
        assert spoiler.is_done == (changed != DATA)
        assert changed[: spoiler.place] == DATA[: spoiler.place]
        assert abs(len(changed) - len(DATA)) <= broken_streams.LONGEST
        assert spoilt(seed, len(DATA))[1] == changed
        names.add(spoiler.name)
    assert names == set(WAYS)
