"""Whenever the power is cut, nothing accepted is lost, torn, or delivered twice at QoS 2.

A slice of the writes is cut in each way in which there is a spool. Each write is cut, and after
each cut the power again, by `python -m flatmq_rigs powercut`.
"""

import pytest

import sizes
from flatmq_rigs import powercut

SLICES = 13
SECOND = 48  # every so many writes there is a second cut in what follows
LAST = 280


FIRST = [(*way, first) for way in powercut.WAYS for first in range(1, SLICES + 1)]
BYPASSED = 8  # fewer writes than there are while messages that bypassed the flash are under way
TWICE = [(*way, at) for way in powercut.WAYS for at in range(9, 210, SECOND)]


@pytest.mark.parametrize(
    ("full", "head", "durable", "version", "first"),
    sizes.one_each(FIRST, lambda case: case[:4], is_proof=True),
)
def test_a_cut(full: str, head: int, durable: bool, version: int, first: int) -> None:
    seen = powercut.sweep(full, head, durable, first, SLICES, version=version)
    writes, cuts, _, _, dropped, gone, *broken = seen
    assert broken == [0] * 5
    assert writes > 150, "the scenario has shrunk"
    assert cuts == 2 * len(range(first, writes + 1, SLICES)), "not every cut came"
    assert (dropped > 0) == (full == "drop")
    assert gone == 0 or not durable, "what is on flash stays"


@pytest.mark.parametrize("version", [4, 5])
def test_what_bypassed_the_flash_goes_with_the_power(version: int) -> None:
    seen = powercut.sweep("drop", 128, False, 1, BYPASSED, version=version)
    _, _, _, _, _, gone, *broken = seen
    assert broken == [0] * 5
    assert gone > 0


@pytest.mark.parametrize(
    ("full", "head", "durable", "version", "at"),
    sizes.one_each(TWICE, lambda case: (case[0], case[3]), is_proof=True),
)
def test_a_second_cut_while_it_recovers(
    full: str, head: int, durable: bool, version: int, at: int
) -> None:
    _, cuts, _, _, _, _, *broken = powercut.sweep(full, head, durable, at, LAST, 1, version)
    assert cuts > 30
    assert broken == [0] * 5


@pytest.mark.parametrize("head", [128, 0])
@pytest.mark.parametrize("full", ["refuse", "drop"])
def test_a_full_file_system_is_a_full_spool(full: str, head: int) -> None:
    accepted, refused, dropped, *broken, again = powercut.without_room(full, head)
    assert broken == [0, 0, 0]
    assert accepted > 50
    assert (refused > 0, dropped > 0) == (full == "refuse", full == "drop")
    assert again == 5


@pytest.mark.parametrize("way", ["online", "offline"])
def test_an_append_and_a_replay_allocate_nothing(way: str) -> None:
    assert powercut.wear(32, 128, 64, way)[3:5] == [0, 0]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_sending_receiving_and_the_journal_allocate_nothing(qos: int, version: int) -> None:
    assert powercut.steady(qos, version) == [0, 0, 195]


def test_the_head_saves_most_of_the_wear() -> None:
    assert powercut.wear(32, 128, 64, "online")[0] < powercut.wear(32, 0, 64, "online")[0] / 10
