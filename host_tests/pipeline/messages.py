"""Messages as the tests make them, in the table raw as an ingest lands them; rows of tables."""

import datetime
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from flatmq.senml import Pack, label
from flatmq_rigs.pipeline.bench.messages import stream
from flatmq_tools.pipeline import delta_batches, log
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.delta_batches import Reader
from flatmq_tools.pipeline.jobs import parsing
from flatmq_tools.pipeline.jobs.columns import MESSAGE
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.log import Writer
from flatmq_tools.pipeline.processes import row_count as count
from flatmq_tools.pipeline.tables import BY_DAY

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
TEMPERATURE = label("chip/temp", "Cel")


def at(seconds: float) -> datetime.datetime:
    """So many seconds after START."""
    return START + datetime.timedelta(microseconds=round(seconds * 1e6))


class Message(NamedTuple):
    """Received `at` seconds after START."""

    topic: str
    payload: bytes
    at: float = 0.0
    qos: int = 1
    retain: bool = False
    dup: bool = False


def pack(
    device: str, boot: int, seq: int, time: float | None = None, temperature: int | None = 2150
) -> bytes:
    """Return a board's pack: `time` in seconds after START, `temperature` in hundredths."""
    made = Pack(device, boot, 200)
    made.begin(seq, None if time is None else int(START.timestamp() + time))
    if temperature is not None:
        assert made.number(TEMPERATURE, temperature, 2)
    return bytes(made.payload())


def reading(
    device: str, boot: int, seq: int, received: float, time: float | None = None,
    temperature: int | None = 2150,
) -> Message:  # fmt: skip
    """A board's pack that was received so many seconds after START."""
    return Message(f"dev/{device}/telemetry", pack(device, boot, seq, time, temperature), received)


def rows(messages: Iterable[Message], offset: int = 0) -> list[tuple[Any, ...]]:
    """With the offsets from `offset` on, in this order."""
    return [
        (m.topic, m.payload, at(m.at), m.qos, m.retain, m.dup, offset + n)
        for n, m in enumerate(messages)
    ]


def frame(spark: SparkSession, messages: Iterable[Message]) -> DataFrame:
    return spark.createDataFrame(rows(messages), SCHEMA)


class _Resolved(parsing.Columns):
    """Reads all packs by the rules of SenML, also those of boards."""

    def _taken(self, *_: object) -> bool:
        return False


def both_ways(
    topic: bytes, payload: bytes, received: int, bound: bool = True
) -> tuple[list[Any], list[Any]]:
    """Return what a message says, read at once where that is possible, and by the rules."""
    found = []
    for kind in (parsing.Columns, _Resolved):
        columns = kind(bound)
        columns.take(topic, payload, received)
        found.append(columns.array().to_pylist())
    return found[0], found[1]


__all__ = ["count", "land", "land_boards", "read", "table", "values_of"]


def table(messages: Sequence[Message], offset: int = 0) -> pa.Table:
    """Return messages with the offsets from `offset` on, without properties of MQTT 5."""
    columns = [*zip(*rows(messages, offset), strict=True)]
    columns += [[None] * len(messages)] * (len(log.SCHEMA) - len(columns))
    arrays = [pa.array(column, f.type) for column, f in zip(columns, log.SCHEMA, strict=True)]
    return pa.table(arrays, schema=log.SCHEMA)


def values_of(reader: Reader, parts: Sequence[InputPartition], name: str) -> list[int]:
    """Return the integers of a column, sorted, of the row groups in these partitions."""
    rows = [row for part in parts for rows in reader.read(part) for row in rows.to_pylist()]
    units = [(row["path"], row["group"]) for row in rows]
    found = delta_batches.read(reader.folder, units, pa.schema([(name, pa.int64())]))
    return sorted(n for rows in found for n in rows[name].to_pylist())


def land(out: Path, messages: Sequence[Message]) -> None:
    """Add messages to the table raw, in one commit."""
    raw = Delta(out / "raw", by_day=BY_DAY["raw"])
    offset = count(out / "raw")
    raw.add([table(messages, offset)], log.SCHEMA, "log", offset + len(messages))


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
