"""The rigs that measure the pipeline: they find what is missing, and measure all of it."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from flatmq_rigs import results
from flatmq_rigs.pipeline import live, scale
from flatmq_rigs.pipeline.bench import chains, command

COUNT = 2000
SOURCE, INGEST = {"receiver", "JVM", "workers"}, {"receiver"}
WORKS = {
    "source": SOURCE, "source-paho": SOURCE, "ingest": INGEST,
    "jobs": {"driver", "JVM", "workers"}, "log": {"JVM"}, "memory": INGEST, "memory-5": INGEST,
}  # fmt: skip


@pytest.mark.parametrize(
    "names", [["memory", "memory-5"], pytest.param([*WORKS], marks=pytest.mark.proof)], ids=len
)
def test_pipelines_are_measured_with_their_parts(names: list[str]) -> None:
    """Each takes all messages, and the parts that work in it have CPU time."""
    assert list(chains.CHAINS) == list(WORKS)
    found = command.measure(COUNT, 1, names)
    assert list(found) == names
    for name, (chain,) in found.items():
        assert chain.messages == COUNT and chain.seconds > 0
        assert all(chain.cpu[part] > 0 for part in WORKS[name]), (name, chain)


SIZE = 50  # bytes of the large message


def test_what_is_missing_or_twice_is_counted(tmp_path: Path) -> None:
    topics = [f"dev/{kind}{n}/telemetry" for kind in "rtd" for n in range(5)]
    payloads = [b"%d" % n for n in range(len(topics))]
    rows = [("dev/large/blob", bytes(SIZE)), *zip(topics, payloads, strict=True)]
    del rows[1], rows[6]  # a retained one, and of the topics
    rows.append(rows[-1])
    table = pa.table([*map(pa.array, zip(*rows, strict=True))], ["topic", "payload"])
    write_deltalake(tmp_path, table)
    found = [live.Figures(name, 1 if name == "large" else 5, 0, 0, 0, 0)
             for name in ("retained", "topics", "large", "steady")]  # fmt: skip
    live.count(tmp_path, found, SIZE)
    assert [(one.missing, one.twice) for one in found] == [(1, 0), (1, 0), (0, 0), (0, 1)]
    with pytest.raises(live.CommandError, match=f"has .{SIZE}. bytes in raw, not 7"):
        live.count(tmp_path, found, 7)


@pytest.mark.proof
def test_every_message_is_counted(tmp_path: Path) -> None:
    """With a hundredth of the loads whose sizes are no options of the command."""
    path = tmp_path / "results.md"
    assert live.main(400, 2, topics=300, retained=200, size=100_000, results_path=path) == 0
    (table,) = results.tables(path, "live")
    counts = sorted(line[1:4] for line in results.rows(table)[1:])
    assert counts == [[count, "0", "0"] for count in ("1", "200", "300", "800")]


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
    found = rows(scale.text(SIZES, COSTS, TRIED))
    assert found["messages a second"] == ["167", "16,667", "1,666,667"]  # one a board and minute
    assert found["broker processes"] == ["1", "10", "1,000"]  # 100,000 connections each
    assert found["their memory"] == ["41 MB", "4.1 GB", "410 GB"]
    assert found["their cores in use"] == ["0.01", "0.60", "60.00"]
    assert found["ingest processes"] == ["1", "2", "107"]  # half a core each
    assert found["Spark's driver: cores"] == ["0.01", "1.00", "100.00"]
    assert found["raw and measurements a day"] == ["864 MB", "86.4 GB", "8.64 TB"]
    assert found["5,000 boards at one broker"][0] == "4,960 readings a second"
    assert found["2 ingests share one broker's messages"][0] == "1,990 and 2,010"


def test_ingests_share_and_nothing_is_lost() -> None:
    found = scale.tried(crowd=20, devices=30, seconds=2)
    assert (found.boards, len(found.shares)) == (20, 2)
    assert found.sent == sum(found.shares) > 30
    assert all(found.shares)
