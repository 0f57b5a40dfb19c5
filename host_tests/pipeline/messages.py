"""Messages as the tests make them: rows with the columns of a message, and packs of boards."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from flatmq.senml import Pack, label
from flatmq_tools.pipeline.jobs import parsing
from flatmq_tools.pipeline.jobs.columns import MESSAGE

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
