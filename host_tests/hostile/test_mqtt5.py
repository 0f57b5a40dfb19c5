"""At MQTT 5 the client bears hostile bytes, on both interpreters, and faulty clients are found."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from conftest import ROOT
from hostile import chance, corpus, corpus5, mutants, mutants5, search
from hostile.test_corpus import run

CASES = corpus.load(corpus5.FILE)
SEED = 5
BY_CHANCE = 60  # cases, in which about 500 packets are changed


@pytest.mark.parametrize("name", CASES)
def test_client_and_oracle_agree_about_a_kept_case(name: str) -> None:
    with search.watched():
        search.judged(CASES[name])


def test_client_and_oracle_agree_by_chance() -> None:
    total: chance.Counts = chance.Counter()
    for case in itertools.islice(chance.made(SEED, 5), BY_CHANCE):
        total += chance.judge(case)
    assert total["changed"] > BY_CHANCE
    assert total["delivered"] > BY_CHANCE


def test_micropython_does_the_same_and_holds_no_more() -> None:
    assert chance.compare(list(CASES.values())) == []


def test_a_crafted_case_of_each_fault_is_kept() -> None:
    names = {f"crafted: {name}" for name, _, _ in corpus5.CRAFTED}
    assert names <= set(CASES)


@pytest.mark.parametrize("name", mutants5.MUTANTS_5)
def test_a_client_with_a_fault_is_found(name: str, tmp_path: Path) -> None:
    library = mutants.make_of(name, mutants5.MUTANTS_5[name], tmp_path)
    done = run(library, "-m", "hostile.corpus5", "--judge")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout, done.stdout + done.stderr


def test_the_client_without_a_fault_passes() -> None:
    done = run(ROOT / "lib", "-m", "hostile.corpus5", "--judge")
    assert (done.returncode, done.stdout) == (0, f"{len(CASES)} cases agree\n"), done.stderr
