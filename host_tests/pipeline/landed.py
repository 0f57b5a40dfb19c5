"""Messages in Parquet files, as an ingest lands them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from flatmq_rigs.pipeline.bench.messages import stream
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.log import SCHEMA, Writer
from pipeline.messages import Message, rows


def table(messages: Sequence[Message], offset: int = 0) -> pa.Table:
    """Return messages with the offsets from `offset` on, without properties of MQTT 5."""
    columns = [*zip(*rows(messages, offset), strict=True)]
    columns += [[None] * len(messages)] * (len(SCHEMA) - len(columns))
    arrays = [pa.array(column, f.type) for column, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def land(folder: Path, messages: Sequence[Message], offset: int = 0) -> None:
    """Add a file to a folder, in which it appears whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{offset}.parquet"
    pq.write_table(table(messages, offset), hidden)
    hidden.rename(folder / f"log-{offset:020}.parquet")


def land_boards(folder: Path, count: int, at: int | None = None, log: str = "log") -> Path:
    """Land the first messages of a fleet of boards in FOLDER/landed, which is returned.

    at   when they were received, in us since 1970; now unless given
    log  the folder in which they wait to be landed
    """
    landed = folder / "landed"
    with Writer(folder / log) as writer:
        received = time.time_ns() // 1000 if at is None else at
        writer.append(stream(count), count, received)
        writer.rotate()
        Landing(writer, str(landed)).land()
    return landed
