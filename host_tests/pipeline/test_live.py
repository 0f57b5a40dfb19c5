"""The rig that loads a run as a busy fleet does finds every message, and finds what is missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from flatmq_rigs import results
from flatmq_rigs.pipeline import live

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
