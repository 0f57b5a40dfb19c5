"""Whatever comes in, the client does what an independent reading of the standard says.

The kept cases and others by chance run over each link, on both interpreters, and find clients that
have a fault.
"""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import sizes
from conftest import ROOT, ran
from flatmq_tools import interpreter
from hostile import chance, corpus, judge, mutants

HERE = Path(__file__).parent
KEPT = {version: corpus.load(version) for version in (4, 5)}
# Kept cases and cases by chance that run in the sample: over TCP they are cheap.
# `python -m flatmq_rigs fuzz-long` runs more by chance.
SAMPLES = {"tcp": (10_000, 250), "websocket": (100, 60)}
ON_DEVICE = {"tcp": 150, "websocket": 25}
SEED = 7
PACKETS = 3000  # in which a fault below MQTT is found
EACH = pytest.mark.parametrize(
    ("version", "link"), [(version, link) for version in KEPT for link in judge.LINKS]
)


@EACH
def test_client_and_oracle_agree_about_the_kept_cases(version: int, link: str) -> None:
    names = sizes.sample(KEPT[version], SAMPLES[link][0])
    assert list(corpus.wrong({name: KEPT[version][name] for name in names}, link)) == []


@EACH
def test_client_and_oracle_agree_by_chance(version: int, link: str) -> None:
    count = SAMPLES[link][1]
    total: chance.Counts = chance.Counter()
    for case in itertools.islice(chance.made(SEED, version), count):
        total += chance.judged(case, link)
    assert min(total["changed"], total["delivered"]) > count
    if link == "websocket":
        assert all(total[name] for name in chance.COUNTED), total


@EACH
def test_micropython_does_the_same_and_holds_no_more(version: int, link: str) -> None:
    kept = sizes.sample(KEPT[version].values(), ON_DEVICE[link])
    assert chance.compare(kept, link) == []


def test_what_differs_on_micropython_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance.replay, "outcome", lambda data, run: (0, 0, ""))
    case = next(iter(KEPT[5].values()))
    assert case.hex() in chance.compare([case])[0]


# Clients with a fault


def run(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Have another process go about it with the client that lies there."""
    return ran(
        [sys.executable, "-m", *arguments],
        env=interpreter.environment(library, HERE.parent, ROOT / "tools"),
        timeout=200,
    )


def found_by(*finders: str) -> pytest.MarkDecorator:
    """Parametrize by the faulty clients of these finders."""
    found = [each for each in mutants.MUTANTS if each.finder in finders]
    return pytest.mark.parametrize("mutant", found, ids=str)


@found_by("4", "5")
def test_a_client_with_a_fault_is_found(mutant: mutants.Mutant, tmp_path: Path) -> None:
    done = run(mutant.make(tmp_path), "hostile.corpus", mutant.finder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout, done.stdout + done.stderr


@found_by("websocket")
def test_a_websocket_with_a_fault_is_found(mutant: mutants.Mutant, tmp_path: Path) -> None:
    done = run(
        mutant.make(tmp_path), "hostile.chance", "--link", "websocket",
        *("--packets", str(PACKETS), "--device", "0", "--processes", "1", "--seed", str(SEED)),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--link websocket --case HEX" in done.stdout, done.stdout + done.stderr
