"""Read the tables of a run that was killed, and count what is missing or twice."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import SparkSession

READERS = ("Parquet, pyarrow", "Parquet, Spark", "Delta, deltalake", "Delta, Spark")


@dataclass
class Count:
    """The findings of one reader in one table."""

    missing: int
    twice: int


class Tables:
    """The tables raw and measurements of a run.

    out  its folder, with Delta tables beside the Parquet tables; or a URL, with Delta alone
    """

    def __init__(self, out: str) -> None:
        self._out = out
        self._is_url = "://" in out

    def landed(self, table: str = "raw") -> int:
        """Return the approximate number of rows in a table: batches may come in between."""
        if self._is_url:
            url = self._delta(table)
            return int(DeltaTable(url).count()) if DeltaTable.is_deltatable(url) else 0
        with contextlib.suppress(OSError):
            return int(ds.dataset(f"{self._out}/{table}", format="parquet").count_rows())
        return 0

    def numbers(self) -> set[int]:
        """Return the numbers of the messages in raw."""
        if self._is_url:
            rows = DeltaTable(self._delta("raw")).to_pyarrow_table(columns=["payload"])
        else:
            rows = ds.dataset(f"{self._out}/raw", format="parquet").to_table(["payload"])
        return {_number(payload) for payload in rows["payload"].to_pylist()}

    def measured(self) -> set[int]:
        """Return the numbers of the messages in measurements.

        Each batch is written to Parquet first and then to Delta, so Delta shows what is done.
        """
        table = DeltaTable(self._delta("measurements"))
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
            for reader, rows in self._read(table, columns, spark).items():
                if table == "raw":
                    numbers = [_number(payload) for payload in rows["payload"].to_pylist()]
                    rows_twice = _twice(rows["offset"].to_pylist())
                    again = max(again, _twice(numbers) - rows_twice)
                else:
                    numbers = rows["seq"].to_pylist()
                    rows_twice = _twice(numbers)
                missing = len(wanted.difference(numbers))
                counts[f"{table}: {reader}"] = Count(missing, rows_twice)
        return counts, again

    def _read(self, table: str, columns: list[str], spark: SparkSession) -> dict[str, pa.Table]:
        """Return the rows by reader. Spark has no access to S3 here."""
        delta = DeltaTable(self._delta(table))
        found = {"Delta, deltalake": delta.to_pyarrow_table(columns=columns)}
        if not self._is_url:
            path = f"{self._out}/{table}"
            found |= {
                "Parquet, pyarrow": ds.dataset(path, format="parquet").to_table(columns),
                "Parquet, Spark": spark.read.parquet(path).select(columns).toArrow(),
                "Delta, Spark": spark.read.parquet(*delta.file_uris()).select(columns).toArrow(),
            }
        return found

    def _delta(self, table: str) -> str:
        return f"{self._out}/{table}" if self._is_url else f"{self._out}/delta/{table}"


def _number(payload: bytes) -> int:
    found = re.search(rb'"seq","v":(\d+)', payload)
    return int(found.group(1)) if found else 0


def _twice(values: Iterable[int]) -> int:
    return sum(n - 1 for n in Counter(values).values())
