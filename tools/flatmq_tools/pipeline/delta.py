"""A Delta table that takes each batch once, written with `deltalake` by the process of the driver.

A batch becomes Parquet files, which no reader looks at yet. They are counted, and synced if they
are on a disk of this machine. Then one commit adds them to the table, together with the number of
the batch. Nothing is renamed, so this is right on an object store too.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow.fs import PyFileSystem
from pyspark.sql import DataFrame, Observation, SparkSession

from . import durable, visible

DAY = "day"
"""The column that a table is partitioned by: a date, in UTC."""
_LOG = "_delta_log"
_COMPRESSION = "zstd"
_BOUNDED = (pa.types.is_timestamp, pa.types.is_integer)  # columns whose bounds readers can use


def files(folder: str, storage_options: Mapping[str, str] | None = None) -> PyFileSystem:
    """The files in the folder of a table, by their paths in it."""
    options = dict(storage_options) if storage_options else None
    return PyFileSystem(DeltaStorageHandler(folder, options))


def is_there(folder: str, storage_options: dict[str, str] | None = None) -> bool:
    """Return whether there is a Delta table."""
    return DeltaTable.is_deltatable(folder, storage_options)


class Delta:
    """A Delta table.

    A batch passes through the driver's memory: bound it with maxOffsetsPerTrigger.

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
        table = self._newest()
        last = None if table is None else table.transaction_version(query)
        return last is not None and last >= batch_id

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch.

        Raises SinkError if its rows cannot be read back, if its columns are not those of
        the table, or if another process writes batches of the same query.
        """
        known = self._newest()
        seen = Observation()
        found = arrow(visible.counted(rows, seen))
        table = self._fitting(found, known)
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
        store = files(self.folder, self._storage)
        added = list(self._added(table, store))
        count = sum(pq.read_metadata(action.path, filesystem=store).num_rows for action in added)
        visible.check(rows, seen, count, self.folder)
        if known is not None and not added:
            return
        commit = CommitProperties(app_transactions=[Transaction(query, batch_id)])
        try:
            self._commit(known, table.schema, added, commit)
        except CommitFailedError as error:
            raise visible.SinkError(
                f"{self.folder}: batch {batch_id} cannot be added, because another process "
                f"writes batches of this query: end that one, and start this one again ({error})"
            ) from error
        self.rows += count

    def _newest(self) -> DeltaTable | None:
        """The table as it is now; None if there is none."""
        if self._table is not None:
            self._table.update_incremental()
        elif is_there(self.folder, self._storage):
            self._table = DeltaTable(self.folder, storage_options=self._storage)
        return self._table

    def _fitting(self, table: pa.Table, known: DeltaTable | None) -> pa.Table:
        """The rows with the columns of the table, which gets those that it lacks."""
        if known is None:
            return table
        there = _schema(known.schema())
        more = [field for field in table.schema if field.name not in there.names]
        if more and not self._add_columns:
            raise visible.SinkError(
                f"{self.folder}: the table has no column {more[0].name}: write to another folder, "
                "or give Delta add_columns=True"
            )
        if more:
            known.alter.add_columns(list(Schema.from_arrow(pa.schema(more)).fields))
            there = pa.schema([*there, *more])
        columns = [
            table[field.name].cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
            for field in there
            if field.name not in known.metadata().partition_columns
        ]
        names = [name for name in there.names if name not in known.metadata().partition_columns]
        return pa.table(columns, names)

    def _partitions(self) -> list[str]:
        """The columns that the table is partitioned by, or will be."""
        by = [DAY] if self._by_day else []
        found = by if self._table is None else self._table.metadata().partition_columns
        if found and found != by:
            raise visible.SinkError(
                f"{self.folder}: the table is partitioned by {', '.join(found)}: give Delta "
                "by_day, if that is a day, or write to another folder"
            )
        return found

    def _added(self, table: pa.Table, store: PyFileSystem) -> Iterator[AddAction]:
        """Write the rows to files, one for each day, and yield what a commit says of them."""
        parts: list[tuple[dict[str, str | None], pa.Table]] = [({}, table)]
        if self._partitions():
            days = pc.cast(table[self._by_day], pa.timestamp("us", "UTC")).cast(pa.date32())
            parts = [
                ({DAY: None if day is None else day.isoformat()}, table.filter(_is(days, day)))
                for day in pc.unique(days).to_pylist()
            ]
        for values, part in parts:
            if not len(part):
                continue
            name = f"part-{uuid.uuid4().hex}.parquet"
            path = "/".join([*(f"{key}={value}" for key, value in values.items()), name])
            pq.write_table(part, path, filesystem=store, compression=_COMPRESSION)
            if self._local is not None:
                durable.upwards(self._local / path, self._local)
            size = store.get_file_info(path).size
            now = time.time_ns() // 1_000_000
            yield AddAction(path, size, values, now, True, json.dumps(_stats(part)))

    def _commit(
        self, known: DeltaTable | None, schema: pa.Schema, added: list[AddAction],
        commit: CommitProperties,
    ) -> None:  # fmt: skip
        if known is None:
            by = self._partitions()
            whole = pa.schema([*schema, *(pa.field(name, pa.date32()) for name in by)])
            create_table_with_add_actions(
                self.folder, Schema.from_arrow(whole), added, "error", by,
                storage_options=self._storage, commit_properties=commit,
            )  # fmt: skip
            known = self._table = DeltaTable(self.folder, storage_options=self._storage)
        else:
            by = known.metadata().partition_columns
            known.create_write_transaction(
                [*added], "append", known.schema(), by, commit_properties=commit
            )
        if self._local is not None:
            log = self._local / _LOG
            durable.upwards(log / f"{known.version():020d}.json", self._local.parent)


def replace(
    rows: DataFrame, folder: str | Path, storage_options: dict[str, str] | None = None
) -> None:
    """Have the Delta table in `folder` be these rows alone, in one step."""
    write_deltalake(
        str(folder),
        arrow(rows),
        mode="overwrite",
        schema_mode="overwrite",
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


def _is(days: pa.ChunkedArray, day: Any) -> pa.ChunkedArray:
    return pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day, pa.date32()))


def _stats(table: pa.Table) -> dict[str, Any]:
    """Return the statistics of a file for Delta's log, by which readers skip it."""
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    for name in table.column_names:
        if any(kind(table.schema.field(name).type) for kind in _BOUNDED):
            ends = pc.min_max(table[name]).as_py()
            for key, end in (("minValues", ends["min"]), ("maxValues", ends["max"])):
                if end is not None:
                    bounds[key][name] = end if isinstance(end, int) else end.isoformat()
    nulls = {
        name: table[name].null_count
        for name in table.column_names
        if not pa.types.is_nested(table.schema.field(name).type)
    }
    return {"numRecords": len(table), **bounds, "nullCount": nulls}
