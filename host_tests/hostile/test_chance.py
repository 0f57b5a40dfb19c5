"""A run by chance that has a limit of time ends in good order, and says so."""

from __future__ import annotations

import math

import pytest
from rich.progress import Progress

from hostile import chance


@pytest.mark.parametrize("version", [4, 5])
def test_a_run_ends_after_its_time_with_what_it_has_judged(version: int) -> None:
    with Progress(disable=True) as shown:
        total = chance.on_desk([1, 2], 10**9, "tcp", shown, version, 0)
    assert total["cases"] == 2  # each process ends with the case that it is at


@pytest.mark.parametrize(("minutes", "said"), [(None, False), (90.0, True)])
def test_the_figures_say_whether_time_was_over(minutes: float | None, said: bool) -> None:
    counts = chance.Counter({"changed": 1234})
    text = chance.section([1], counts, counts, 5400, version=5, minutes=minutes)
    assert ("VERSION=5 MINUTES=90`" in text) == said
    assert ("ended after 90 minutes" in text) == said
    assert "| packets that were changed | 1,234 |" in text


def test_a_run_without_a_limit_judges_all() -> None:
    with Progress(disable=True) as shown:
        total = chance.on_desk([1], 20, "tcp", shown, 5, math.inf)
    assert total["changed"] >= 20
