"""Read the tables of a run that was killed, and count what is missing or twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_tools.pipeline.processes import row_count
from flatmq_tools.pipeline.tables import of

READERS = ("deltalake", "Spark")


@dataclass
class Count:
    """The findings of one reader in one table."""

    missing: int
    twice: int


class Tables:
    """The tables raw and measurements of a run.

    out  their folder or URL
    """

    def __init__(self, out: str) -> None:
        self._out = out

    def landed(self, table: str = "raw") -> int:
        """Return the number of rows in a table."""
        return row_count(of(self._out, table))

    def numbers(self) -> set[int]:
        """Return the numbers of the messages in raw."""
        raw = DeltaTable(of(self._out, "raw")).to_pyarrow_table(columns=["payload"])
        return {_number(payload) for payload in raw["payload"].to_pylist()}

    def measured(self) -> set[int]:
        """Return the numbers of the messages in measurements."""
        table = DeltaTable(of(self._out, "measurements"))
        return set(table.to_pyarrow_table(columns=["seq"])["seq"].to_pylist())

    def counted(
        self, messages: int, spark: SparkSession, lost: Collection[int] = ()
    ) -> tuple[dict[str, Count], int]:
        """Return what each reader finds in each table, and how many messages were resent.

        The readings in `lost` may be missing.
        """
        wanted = set(range(1, messages + 1)).difference(lost)
        counts = {}
        again = 0
        for table, columns in (("raw", ["payload", "offset"]), ("measurements", ["seq"])):
            for reader, found in self._read(table, columns, spark).items():
                if table == "raw":
                    numbers = [_number(payload) for payload in found["payload"].to_pylist()]
                    rows_twice = _twice(found["offset"].to_pylist())
                    again = max(again, _twice(numbers) - rows_twice)
                else:
                    numbers = found["seq"].to_pylist()
                    rows_twice = _twice(numbers)
                missing = len(wanted.difference(numbers))
                counts[f"{table}: {reader}"] = Count(missing, rows_twice)
        return counts, again

    def _read(self, table: str, columns: list[str], spark: SparkSession) -> dict[str, pa.Table]:
        """Return the rows by reader. Spark has no access to S3 here."""
        delta = DeltaTable(of(self._out, table))
        found = {"deltalake": delta.to_pyarrow_table(columns=columns)}
        if "://" not in self._out:
            found["Spark"] = spark.read.parquet(*delta.file_uris()).select(columns).toArrow()
        return found


def _number(payload: bytes) -> int:
    found = re.search(rb'"seq","v":(\d+)', payload)
    return int(found.group(1)) if found else 0


def _twice(values: Iterable[int]) -> int:
    return sum(n - 1 for n in Counter(values).values())
