"""A Delta table that takes each batch once, written with `deltalake` by this process.

A batch becomes Parquet files, which no reader looks at yet. They are synced if they are on a disk
of this machine. Then one commit adds them to the table, together with the number of the batch.
Nothing is renamed, so this is right on an object store too.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow.fs import PyFileSystem

from . import durable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY = "day"
"""The column that a table is partitioned by: a date, in UTC."""
GRACE = 24
"""Hours for which replaced files and old entries of the log stay, for readers that began before
and for queries that are behind."""
_CONFIGURATION = {
    "delta.deletedFileRetentionDuration": f"interval {GRACE} hours",
    "delta.logRetentionDuration": f"interval {GRACE} hours",
    # Only `maintenance` knows what the queries have still to read.
    "delta.enableExpiredLogCleanup": "false",
}
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
_LOG = "_delta_log"
_COMPRESSION = "zstd"
_TRIES = 10  # of a commit, if others change the table meanwhile
_TEXT = 32  # characters of a bound in the log
_LAST = "\U0010ffff"
# Of a row group: the smallest piece that a query reads.
_ROWS = 100_000
_BYTES = 16 << 20


class SinkError(RuntimeError):
    """A batch cannot be written; the text says why, and what to do."""


def files(folder: str, storage_options: Mapping[str, str] | None = None) -> PyFileSystem:
    """The files in the folder of a table, by their paths in it."""
    options = dict(storage_options) if storage_options else None
    return PyFileSystem(DeltaStorageHandler(folder, options))


def is_there(folder: str, storage_options: dict[str, str] | None = None) -> bool:
    """Return whether there is a Delta table."""
    return DeltaTable.is_deltatable(folder, storage_options)


class Delta:
    """A Delta table.

    A batch of a query passes through the driver's memory: bound it with maxOffsetsPerTrigger.

    folder           a path, or a URL that deltalake knows: s3://, s3a://, gs://, abfs://, hdfs://
    storage_options  what deltalake needs for that beside the environment
    add_columns      True: a table gets the columns that it lacks, null in the rows it has. If
                     False, a batch with such columns is refused
    by_day           a new table is partitioned by the day, in UTC, of this timestamp column
    """

    def __init__(
        self,
        folder: str | Path,
        storage_options: dict[str, str] | None = None,
        *,
        add_columns: bool = False,
        by_day: str | None = None,
    ) -> None:
        self.folder = str(folder)
        self._storage = storage_options
        self._add_columns = add_columns
        self._by_day = by_day
        self._table: DeltaTable | None = None
        self._local = Path(self.folder) if "://" not in self.folder else None
        self.rows = 0
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        """Return whether the batch of that query is in the table."""
        last = self.last(query)
        return last is not None and last >= batch_id

    def last(self, writer: str) -> int | None:
        """Return the number of the last batch of that writer; None if the table has none."""
        table = self._newest()
        return None if table is None else table.transaction_version(writer)

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch of a query. Raises SinkError as `add` does."""
        found = arrow(rows)
        self.add([found], found.schema, query, batch_id)

    def add(self, parts: Iterable[pa.Table], schema: pa.Schema, writer: str, number: int) -> int:
        """Add a batch in one step, and return the number of its rows.

        parts   the rows, with the columns of `schema`; one part at a time is in memory
        writer  names who numbers the batches
        number  of the batch, higher than that of the writer's last one

        A table that does not exist is created, also for a batch without rows; otherwise such a
        batch leaves no trace. Raises SinkError if the columns are not those of the table, or if
        another process writes batches of the same writer.
        """
        known = self._newest()
        if known is not None:
            self._fit(schema, known)
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
        added, count = self._written(parts, known)
        if known is not None and not added:
            return 0
        commit = CommitProperties(app_transactions=[Transaction(writer, number)])
        for left in reversed(range(_TRIES)):
            try:
                if known is not None:
                    self._fit(schema, known)
                self._commit(known, schema, added, commit)
                break
            except CommitFailedError as error:
                # Another process may only have created the table meanwhile, or given it a column.
                known = self._newest()
                last = self.last(writer)
                if last is not None and last >= number:
                    raise SinkError(
                        f"{self.folder}: batch {number} cannot be added, because another process "
                        f"writes batches of {writer}: end that one, and start this one again "
                        f"({error})"
                    ) from error
                if not left:
                    raise SinkError(
                        f"{self.folder}: batch {number} cannot be added, because the table was "
                        f"changed by others during {_TRIES} tries ({error})"
                    ) from error
        self.rows += count
        return count

    def _newest(self) -> DeltaTable | None:
        """The table as it is now; None if there is none."""
        if self._table is not None:
            self._table.update_incremental()
        elif is_there(self.folder, self._storage):
            self._table = DeltaTable(self.folder, storage_options=self._storage)
        return self._table

    def _fit(self, schema: pa.Schema, known: DeltaTable) -> None:
        """Add the columns of a batch that the table lacks."""
        for left in reversed(range(_TRIES)):
            there = _schema(known.schema())
            more = [field for field in schema if field.name not in there.names]
            if not more:
                return
            if not self._add_columns:
                raise SinkError(
                    f"{self.folder}: the table has no column {more[0].name}: write to another "
                    "folder, or give Delta add_columns=True"
                )
            try:
                known.alter.add_columns(list(Schema.from_arrow(pa.schema(more)).fields))
            except CommitFailedError:  # another process may have added one meanwhile
                if not left:
                    raise
                known.update_incremental()

    def _partitions(self) -> list[str]:
        """The columns that the table is partitioned by, or will be."""
        by = [DAY] if self._by_day else []
        found = by if self._table is None else self._table.metadata().partition_columns
        if found and found != by:
            raise SinkError(
                f"{self.folder}: the table is partitioned by {', '.join(found)}: give Delta "
                "by_day, if that is a day, or write to another folder"
            )
        return found

    def _written(
        self, parts: Iterable[pa.Table], known: DeltaTable | None
    ) -> tuple[list[AddAction], int]:
        """Write the rows to files, one for each day; return what a commit says of them, and how
        many rows there are.
        """
        store = files(self.folder, self._storage)
        columns = None if known is None else _schema(known.schema())
        by = self._partitions()
        writers: dict[str | None, tuple[str, pq.ParquetWriter]] = {}
        try:
            for part in parts:
                for day, rows in _by_day(part, self._by_day) if by else [(None, part)]:
                    whole = rows if columns is None else _fitting(rows, columns, by)
                    if day not in writers:
                        name = f"part-{uuid.uuid4().hex}.parquet"
                        path = f"{DAY}={day or _NO_DAY}/{name}" if by else name
                        writers[day] = (
                            path,
                            pq.ParquetWriter(
                                path, whole.schema, filesystem=store, compression=_COMPRESSION
                            ),
                        )
                    writers[day][1].write_table(whole, _group(whole))
        finally:
            for _, writer in writers.values():
                writer.close()
        actions, count = [], 0
        for day, (path, _) in writers.items():
            found = pq.read_metadata(path, filesystem=store)
            count += found.num_rows
            if self._local is not None:
                durable.upwards(self._local / path, self._local)
            values: dict[str, str | None] = {DAY: day} if by else {}
            size = store.get_file_info(path).size
            now = time.time_ns() // 1_000_000
            actions.append(AddAction(path, size, values, now, True, json.dumps(_stats(found))))
        return actions, count

    def _commit(
        self, known: DeltaTable | None, schema: pa.Schema, added: list[AddAction],
        commit: CommitProperties,
    ) -> None:  # fmt: skip
        before = -1 if known is None else known.version()
        if known is None:
            by = self._partitions()
            whole = pa.schema([*schema, *(pa.field(name, pa.date32()) for name in by)])
            try:
                create_table_with_add_actions(
                    self.folder, Schema.from_arrow(whole), added, "error", by,
                    configuration=_CONFIGURATION, storage_options=self._storage,
                    commit_properties=commit,
                )  # fmt: skip
            except DeltaError:
                known = self._newest()  # another process may have created it meanwhile
                if known is None:
                    raise
                self._commit(known, schema, added, commit)
                return
            known = self._table = DeltaTable(self.folder, storage_options=self._storage)
        else:
            by = known.metadata().partition_columns
            known.create_write_transaction(
                [*added], "append", known.schema(), by, commit_properties=commit
            )
            known.update_incremental()
        if self._local is not None:
            # Others may have committed before and after it.
            for version in range(before + 1, known.version() + 1):
                durable.path(self._local / _LOG / f"{version:020d}.json")
            durable.upwards(self._local / _LOG, self._local.parent)


def replace(
    rows: DataFrame | pa.Table, folder: str | Path, storage_options: dict[str, str] | None = None
) -> None:
    """Have the Delta table in `folder` be these rows alone, in one step."""
    write_deltalake(
        str(folder),
        rows if isinstance(rows, pa.Table) else arrow(rows),
        mode="overwrite",
        schema_mode="overwrite",
        configuration=_CONFIGURATION,
        storage_options=storage_options,
    )


def arrow(rows: DataFrame) -> pa.Table:
    """The rows, in this process, with the types that Delta has."""
    table = rows.toArrow()
    return table.cast(pa.schema([_in_utc(column) for column in table.schema]))


def _in_utc(column: pa.Field) -> pa.Field:
    """Delta knows times in UTC alone, and Arrow calls them by the zone of the session."""
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.with_type(pa.timestamp("us", "UTC"))
    return column


def _schema(schema: Schema) -> pa.Schema:
    return pa.schema(schema.to_arrow())


def _fitting(rows: pa.Table, columns: pa.Schema, without: list[str]) -> pa.Table:
    """Return the rows with these columns, null in those that they lack."""
    there = [field for field in columns if field.name not in without]
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in there
        ],
        [field.name for field in there],
    )


def _by_day(rows: pa.Table, column: str | None) -> list[tuple[str | None, pa.Table]]:
    """Return the rows of each day, in UTC, of a timestamp column."""
    days = pc.cast(rows[column], pa.timestamp("us", "UTC")).cast(pa.date32())
    found = pc.unique(days).to_pylist()
    if len(found) == 1:
        return [(None if found[0] is None else found[0].isoformat(), rows)]
    return [
        (None if day is None else day.isoformat(), rows.filter(_is(days, day))) for day in found
    ]


def _is(days: pa.ChunkedArray, day: Any) -> pa.ChunkedArray:
    return pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day, pa.date32()))


def _group(rows: pa.Table) -> int:
    """Return how many rows are one group of a file."""
    return max(1, min(_ROWS, _BYTES * len(rows) // max(1, rows.nbytes)))


def _stats(file: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file for Delta's log, by which readers skip it.

    Some take a column whose bounds are missing for one without a value, so each has them.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    types = {field.name: field.type for field in file.schema.to_arrow_schema()}
    for group in map(file.row_group, range(file.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, known = column.path_in_schema, column.statistics
            if name not in types or known is None:
                continue
            nulls[name] = nulls.get(name, 0) + known.null_count
            if known.null_count == group.num_rows or pa.types.is_binary(types[name]):
                continue
            low, high = _bounds(types[name], known)
            least[name] = min(least.get(name, low), low)
            most[name] = max(most.get(name, high), high)
    return {
        "numRecords": file.num_rows,
        "minValues": {name: _plain(value) for name, value in least.items()},
        "maxValues": {name: _plain(value) for name, value in most.items()},
        "nullCount": nulls,
    }


def _bounds(kind: pa.DataType, known: pq.Statistics) -> tuple[Any, Any]:
    """Return bounds of the values of a row group. Parquet has none of NaN and of long texts."""
    if pa.types.is_floating(kind):
        most = sys.float_info.max  # JSON has no infinity
        if not known.has_min_max:
            return -most, most
        return max(-most, min(known.min, most)), min(most, max(known.max, -most))
    if pa.types.is_string(kind):
        if not known.has_min_max:
            return "", _LAST
        long = len(known.max) > _TEXT
        return known.min[:_TEXT], known.max[:_TEXT] + _LAST if long else known.max
    return known.min, known.max


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str)) else value.isoformat()
