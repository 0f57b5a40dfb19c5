"""A run by chance that has a limit of time ends in good order, and says so."""

from __future__ import annotations

import math

import pytest
from rich.progress import Progress

from hostile import chance


@pytest.mark.parametrize(
    ("packets", "seconds", "key", "least"), [(10**9, 0, "cases", 1), (20, math.inf, "changed", 20)]
)
def test_a_run_ends_after_its_time_or_its_packets(
    packets: int, seconds: float, key: str, least: int
) -> None:
    with Progress(disable=True) as shown:
        total = chance.on_desk([1, 2], packets, "tcp", shown, 5, seconds)
    assert total[key] >= least
    assert seconds or total["cases"] == 2 * chance.SHARE


@pytest.mark.parametrize(("minutes", "said"), [(None, False), (90.0, True)])
def test_the_figures_say_whether_time_was_over(minutes: float | None, said: bool) -> None:
    counts = chance.Counter({"changed": 1234})
    text = chance.section([1], counts, counts, 5400, version=5, minutes=minutes)
    assert ("--version 5 --minutes 90`" in text) == said
    assert ("ended after 90 minutes" in text) == said
    assert "| packets that were changed | 1,234 |" in text
