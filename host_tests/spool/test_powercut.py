"""Whenever the power is cut, nothing accepted is lost, torn, or delivered twice at QoS 2."""

import pytest

from flatmq_rigs import powercut


@pytest.mark.parametrize(("full", "head", "durable", "version"), powercut.WAYS)
def test_a_cut_at_every_write(full: str, head: int, durable: bool, version: int) -> None:
    seen = powercut.sweep(full, head, durable, version=version)
    writes, cuts, _, _, dropped, gone, *broken = seen
    assert broken == [0] * 5
    assert writes > 150, "the scenario has shrunk"
    assert cuts == 2 * writes, "not every cut came"
    assert (dropped > 0) == (full == "drop")
    assert (gone == 0) == durable, "what was not acknowledged goes with the power"


@pytest.mark.parametrize("version", [4, 5])
def test_a_second_cut_while_it_recovers(version: int) -> None:
    _, cuts, _, _, _, _, *broken = powercut.sweep("drop", 128, True, 9, 48, 1, version)
    assert cuts > 200
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
