"""Messages in the table raw, as an ingest lands them, and the rows of tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.datasource import InputPartition

from flatmq_rigs.pipeline.bench.messages import stream
from flatmq_tools.pipeline import delta_batches
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.delta_batches import Reader, Unit
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.log import SCHEMA, Writer
from flatmq_tools.pipeline.processes import row_count as count
from flatmq_tools.pipeline.tables import BY_DAY
from pipeline.messages import Message, rows

__all__ = ["count", "land", "land_boards", "read", "table", "values_of"]


def table(messages: Sequence[Message], offset: int = 0) -> pa.Table:
    """Return messages with the offsets from `offset` on, without properties of MQTT 5."""
    columns = [*zip(*rows(messages, offset), strict=True)]
    columns += [[None] * len(messages)] * (len(SCHEMA) - len(columns))
    arrays = [pa.array(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def values_of(reader: Reader, parts: Sequence[InputPartition], name: str) -> list[int]:
    """Return the integers of a column, sorted, of the row groups in these partitions."""
    units = [
        Unit(**row) for part in parts for rows in reader.read(part) for row in rows.to_pylist()
    ]
    found = delta_batches.read(reader.folder, units, pa.schema([(name, pa.int64())]))
    return sorted(n for rows in found for n in rows[name].to_pylist())


def land(out: Path, messages: Sequence[Message], offset: int = 0) -> None:
    """Add messages to the table raw, in one commit."""
    raw = Delta(out / "raw", by_day=BY_DAY["raw"])
    raw.add([table(messages, offset)], SCHEMA, "log", offset + len(messages))


def land_boards(out: Path | str, count: int, log: Path, at: int | None = None) -> None:
    """Land the next messages of a fleet of boards in the table raw.

    log  the folder in which they wait to be landed
    at   when they were received, in us since 1970; now unless given
    """
    with Writer(log) as writer:
        received = time.time_ns() // 1000 if at is None else at
        writer.append(stream(count), count, received)
        writer.rotate()
        Landing(writer, str(out)).land()


def read(table: Path | str, *columns: str) -> list[dict[str, Any]]:
    """Return the rows of a table; none if it does not exist yet."""
    if not DeltaTable.is_deltatable(str(table)):
        return []
    found = DeltaTable(str(table)).to_pyarrow_table(columns=list(columns) or None)
    return [{k: v for k, v in row.items() if k != "day"} for row in found.to_pylist()]
