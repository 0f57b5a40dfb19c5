"""Test `python -m flatmq_rigs scale`: its plan follows from the measurements."""

from __future__ import annotations

import re

from flatmq_rigs.pipeline import scale

SIZES = scale.Sizes(messages=1000, raw=40, measurements=20)
COSTS = scale.Costs(
    rate=1000, memory=4096, broker=36e-6, ingest=32e-6, boards=60e-6, connect=72e-6,
    driver=60e-6,
)  # fmt: skip
TRIED = scale.Tried(boards=5000, rate=4960, boards_cpu=0.25, sent=4000, shares=(1990, 2010))


def rows(text: str) -> dict[str, list[str]]:
    found = [re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if "|" in line]
    return {row[0]: row[1:] for row in found}


def test_the_plan_is_arithmetic_on_what_was_measured() -> None:
    told = rows(scale.text(SIZES, COSTS, TRIED))
    assert told["messages a second"] == ["167", "16,667", "1,666,667"]  # one a board and minute
    assert told["broker processes"] == ["1", "10", "1,000"]  # 100,000 connections each
    assert told["their memory"] == ["41 MB", "4.1 GB", "410 GB"]
    assert told["their cores in use"] == ["0.01", "0.60", "60.00"]
    assert told["ingest processes"] == ["1", "2", "107"]  # half a core each
    assert told["Spark's driver: cores"] == ["0.01", "1.00", "100.00"]
    assert told["raw and measurements a day"] == ["864 MB", "86.4 GB", "8.64 TB"]
    assert told["5,000 boards at one broker"][0] == "4,960 readings a second"
    assert told["2 ingests share one broker's messages"][0] == "1,990 and 2,010"


def test_ingests_share_and_nothing_is_lost() -> None:
    found = scale.tried(crowd=20, devices=30, seconds=2)
    assert (found.boards, len(found.shares)) == (20, 2)
    assert found.sent == sum(found.shares) > 30
    assert all(found.shares)
