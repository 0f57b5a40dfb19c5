"""The hostile cases of TCP over WebSocket, with frames that are spoilt, too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from conftest import ROOT
from hostile import chance, corpus, corpus5, framed, mutants, search
from hostile.test_corpus import run

CASES = corpus.load()
CASES_5 = corpus.load(corpus5.FILE)
BY_CHANCE = 200
SEED = 7
PACKETS = 3000  # in which each fault is found


@pytest.mark.parametrize("kept", [CASES, CASES_5], ids=["MQTT 3", "MQTT 5"])
def test_the_kept_cases_pass_over_websocket(kept: dict[str, bytes]) -> None:
    for name, data in kept.items():
        with search.watched():
            try:
                search.judge(data, search.oracle_of(data), "websocket")
            except (Exception, search.drive.Stuck) as e:
                raise AssertionError(name) from e


@pytest.mark.parametrize("version", [4, 5])
def test_cases_by_chance_pass_over_websocket(version: int) -> None:
    """In each of the three ways, and with pings, frames and upgrades that are spoilt."""
    total: chance.Counts = chance.Counter()
    for case in itertools.islice(chance.made(SEED, version), BY_CHANCE):
        total += chance.judge(case, "websocket")
    assert total["cases"] == BY_CHANCE
    assert all(total[name] for name in chance.COUNTED["websocket"]), total


@pytest.mark.parametrize("kept", [CASES, CASES_5], ids=["MQTT 3", "MQTT 5"])
def test_micropython_does_the_same_over_websocket_and_holds_no_more(
    kept: dict[str, bytes],
) -> None:
    assert chance.compare(list(kept.values()), "websocket") == []


def test_the_way_of_a_case_is_its_own() -> None:
    ways = [framed.way_of(data) for data in CASES.values()]
    assert set(ways) == {framed.STEADY, framed.LOOSE, framed.HOSTILE}


def fuzzed(library: Path) -> tuple[int, str]:
    """Exit status and output of a short run with the client that lies there."""
    done = run(
        library,
        *("-m", "hostile.chance", "--link", "websocket", "--packets", str(PACKETS)),
        *("--device", "0", "--processes", "1", "--seed", str(SEED)),
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", mutants.BELOW)
def test_a_websocket_with_a_fault_is_found(name: str, tmp_path: Path) -> None:
    status, said = fuzzed(mutants.make(name, tmp_path))
    assert status == 1, said
    assert "--link websocket --case HEX" in said, said


def test_a_websocket_without_a_fault_passes() -> None:
    status, said = fuzzed(ROOT / "lib")
    assert status == 0, said
