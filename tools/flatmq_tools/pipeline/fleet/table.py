"""A Delta table that executors write and read, and that the driver only commits.

The executors write Parquet files, which no reader looks at yet. The driver reads their footers,
syncs them if they are on a disk of this machine, and adds them to the table in one commit, with
the number of the batch.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyarrow.fs import PyFileSystem
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .. import durable

_LOG = "_delta_log"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_COMPRESSION = "zstd"
_BOUNDED = (pa.types.is_timestamp, pa.types.is_integer)  # columns whose bounds readers can use
_CONF = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Delta has no other
    # Else a job lists the files, whose names are known.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


class TableError(RuntimeError):
    """A batch cannot be written; the text says why, and what to do."""


class File(NamedTuple):
    """A file of a table."""

    path: str
    """Within the folder of the table."""
    rows: int
    size: int
    """In bytes."""
    partition: Mapping[str, Any] = {}
    """The value of each column that the table is partitioned by."""
    least: Mapping[str, Any] = {}
    """The least value of columns, where it is known."""


class Table:
    """A Delta table.

    folder           a path, or a URL that deltalake knows
    schema           its columns, without those that it is partitioned by
    by               columns that it is partitioned by, and their types
    storage_options  what deltalake needs for the folder beside the environment
    """

    def __init__(
        self, spark: SparkSession, folder: str | Path, schema: str,
        by: Mapping[str, str] | None = None, storage_options: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        for name, value in _CONF.items():
            spark.conf.set(name, value)
        self.spark = spark
        self.folder = str(folder)
        self.schema = parsed(schema)
        self._by = dict(by or {})
        self._storage = storage_options
        self._table: DeltaTable | None = None
        self._local = Path(self.folder) if "://" not in self.folder else None

    def newest(self) -> DeltaTable | None:
        """Return the table as it is now; None if there is none."""
        if self._table is not None:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(self.folder, self._storage):
            self._table = DeltaTable(self.folder, storage_options=self._storage)
        return self._table

    def position(self, job: str) -> int | None:
        """Return the position of a job up to which the table has its rows."""
        table = self.newest()
        return None if table is None else table.transaction_version(job)

    def files(self) -> list[File]:
        """Return the files that the table has now."""
        table = self.newest()
        return [] if table is None else listed(table)

    def read(self, files: Iterable[File], columns: str | None = None) -> DataFrame:
        """Return the rows of some of its files; columns that a file lacks are null."""
        schema = self.schema if columns is None else parsed(columns)
        return read(self.spark, self.folder, files, schema)

    def commit(
        self, rows: DataFrame | None, job: str, position: int, remove: Sequence[File] = (),
        always: bool = False,
    ) -> int:  # fmt: skip
        """Add rows and remove files in one step; return how many rows were added.

        Without rows nothing is committed, unless `always`. Raises TableError if the driver cannot
        read all of the rows that executors wrote, or if another process writes for the same job.
        """
        added = [] if rows is None else list(self._written(rows))
        count = sum(json.loads(action.stats)["numRecords"] for action in added)
        if not (added or remove or always):
            return 0
        properties = CommitProperties(app_transactions=[Transaction(job, position)])
        now = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(file.path, True, now, file.size, _texts(file.partition))
            for file in remove
        ]
        try:
            self._commit(added, removed, properties)
        except CommitFailedError as error:
            raise TableError(
                f"{self.folder}: another process writes the rows of {job}: end that one, and "
                f"start this one again ({error})"
            ) from error
        return count

    def _commit(
        self, added: list[AddAction], removed: list[RemoveAction], properties: CommitProperties
    ) -> None:
        table = self.newest()
        by = list(self._by)
        if table is None:
            whole = to_arrow_schema(
                StructType([*self.schema, *parsed(_ddl(self._by))]), timezone="UTC"
            )
            create_table_with_add_actions(
                self.folder, Schema.from_arrow(whole), added, "error", by,
                storage_options=self._storage, commit_properties=properties,
            )  # fmt: skip
            table = self._table = DeltaTable(self.folder, storage_options=self._storage)
        else:
            table.create_write_transaction(
                [*added, *removed], "append", table.schema(), by, commit_properties=properties
            )
        if self._local is not None:
            log = self._local / _LOG
            durable.upwards(log / f"{table.version():020d}.json", self._local.parent)

    def _written(self, rows: DataFrame) -> Iterator[AddAction]:
        """Have the executors write rows to files, and yield what a commit says of them."""
        if self._local is None:
            raise TableError(f"{self.folder}: rows cannot be written to a URL yet")
        seen = Observation()
        rows = rows.select(*self.schema.names, *self._by).observe(seen, F.count("*").alias("rows"))
        hidden = self._local / f".{uuid.uuid4().hex}"
        rows.write.option("compression", _COMPRESSION).partitionBy(*self._by).parquet(str(hidden))
        wanted, found = int(seen.get["rows"]), 0
        for file in sorted(hidden.rglob("*.parquet")):
            place = file.relative_to(hidden)
            footer = pq.read_metadata(file)
            if not footer.num_rows:
                continue
            found += footer.num_rows
            target = self._local / place
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
            durable.upwards(target, self._local)
            parts = dict(part.split("=", 1) for part in place.parts[:-1])
            values = {key: None if v == _NULL else unquote(v) for key, v in parts.items()}
            yield AddAction(
                str(place), target.stat().st_size, values, time.time_ns() // 1_000_000, True,
                json.dumps(_stats(footer)),
            )  # fmt: skip
        _removed(hidden)
        if found != wanted:
            raise TableError(
                f"{self.folder}: the driver can read {found:,} of the {wanted:,} rows that were "
                "written. Most likely the executors run on other machines, or in other "
                "containers, which do not share that folder: name one that the driver and all "
                "executors share, or run with --master 'local[*]'. Nothing was committed"
            )


def parsed(columns: str) -> StructType:
    """Return a schema from its DDL."""
    found = StructType.fromDDL(columns)
    assert isinstance(found, StructType)
    return found


def read(spark: SparkSession, folder: str, files: Iterable[File], schema: StructType) -> DataFrame:
    """Return the rows of files in the folder of a table, with these columns."""
    paths = [f"{folder}/{file.path}" for file in files]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)


def listed(table: DeltaTable) -> list[File]:
    """Return the files of a version of a table, those with the oldest rows first."""
    actions = pa.table(table.get_add_actions()).to_pylist()
    found = [
        (
            one["modification_time"],
            File(
                unquote(one["path"]), one["num_records"] or 0, one["size_bytes"],
                one.get("partition") or {}, one.get("min") or {},
            ),
        )
        for one in actions
    ]  # fmt: skip
    return [file for _, file in sorted(found, key=lambda each: (each[0], each[1].path))]


def store(folder: str, storage_options: dict[str, str] | None = None) -> PyFileSystem:
    """Return the files in the folder of a table, by their paths in it."""
    return PyFileSystem(DeltaStorageHandler(folder, storage_options))


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {key: None if value is None else str(value) for key, value in values.items()}


def _removed(folder: Path) -> None:
    """Remove what is left of a folder of files that were moved."""
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    folder.rmdir()


def _stats(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file for Delta's log, by which readers skip it."""
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    kinds = {field.name: field.type for field in footer.schema.to_arrow_schema()}
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, known = column.path_in_schema, column.statistics
            if known is None or not known.has_min_max or name not in kinds:
                continue
            if any(kind(kinds[name]) for kind in _BOUNDED):
                for key, choose, end in (
                    ("minValues", min, known.min), ("maxValues", max, known.max),
                ):  # fmt: skip
                    bounds[key][name] = choose(bounds[key].get(name, end), end)
    return {
        "numRecords": footer.num_rows,
        **{key: {name: _plain(v) for name, v in ends.items()} for key, ends in bounds.items()},
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else value.isoformat()
