"""A Delta table that takes each batch once, written with `deltalake` by this process.

A batch becomes Parquet files, which no reader looks at yet. They are synced if they are on a disk
of this machine. Then one commit adds them to the table, together with the number of the batch.
Nothing is renamed, so this is right on an object store too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from . import durable
from .delta_files import DAY, Added, Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GRACE = 24
"""Hours for which replaced files stay, for readers that began before and for queries that are
behind."""
LOG_GRACE = 6
"""Hours for which old entries of the log stay. Each commit lists them, and there may be one a
second."""
_SNAPSHOT_GRACE = 1
"""Both of a table that is replaced, which no query follows."""
_LOG = "_delta_log"


def _configuration(files: int, log: int) -> dict[str, str]:
    return {
        "delta.deletedFileRetentionDuration": f"interval {files} hours",
        "delta.logRetentionDuration": f"interval {log} hours",
        # Only `maintenance` knows what the queries have still to read.
        "delta.enableExpiredLogCleanup": "false",
        # A commit, and who opens the table, reads all entries since the last one.
        "delta.checkpointInterval": "10",
    }


class SinkError(RuntimeError):
    """A batch cannot be written; the text says why, and what to do."""


class Delta:
    """A Delta table.

    A batch of a query passes through the driver's memory: bound it with maxOffsetsPerTrigger.

    folder  a path, or a URL that deltalake knows: s3://, s3a://, gs://, abfs://, hdfs://
    by_day  a new table is partitioned by the day, in UTC, of this timestamp column
    """

    def __init__(self, folder: str | Path, *, by_day: str | None = None) -> None:
        self.folder = str(folder)
        self._by_day = by_day
        self._table: DeltaTable | None = None
        self._local = Path(self.folder) if "://" not in self.folder else None
        self.rows = 0
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int) -> bool:
        """Return whether the batch of that query is in the table."""
        last = self.last(query)
        return last is not None and last >= batch_id

    def last(self, writer: str) -> int | None:
        """Return the number of the last batch of that writer; None if the table has none."""
        table = self.newest()
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
        with self.writing(schema) as made:
            for part in parts:
                made.write(part)
        return self.commit(made.added, schema, writer, number)

    def writing(self, schema: pa.Schema) -> Files:
        """Return what writes files for `commit`, here or, after it was sent there, elsewhere.

        Raises SinkError as `add` does.
        """
        known = self.newest()
        days = self._partitions()
        columns = None
        if known is not None:
            there = pa.schema(known.schema().to_arrow())
            unknown = [name for name in schema.names if name not in there.names]
            if unknown:
                raise SinkError(
                    f"{self.folder}: the table has no column {unknown[0]}: write to another folder"
                )
            columns = pa.schema([field for field in there if field.name not in days])
        return Files(self.folder, self._by_day if days else None, columns)

    def commit(self, added: Sequence[Added], schema: pa.Schema, writer: str, number: int) -> int:
        """Add the files of a batch, as `add` does."""
        known = self.newest()
        self._check(writer, number)
        if known is not None and not added:
            return 0
        count = sum(each.rows for each in added)
        transaction = Transaction(writer, number)
        try:
            self._commit(known, schema, added, transaction)
        except DeltaError as error:
            created, known = known is None, self.newest()
            self._check(writer, number, error)
            if known is None or not created:
                raise
            # Another process has created the table meanwhile.
            self._commit(known, schema, added, transaction)
        self.rows += count
        return count

    def replace(self, rows: pa.Table, by: str | None = None, where: str | None = None) -> None:
        """Have the table be these rows alone, in one step.

        by     the column by which a new table is partitioned
        where  a condition on that column: only such rows are replaced
        """
        known = self._table or self.newest()
        before, old = (-1, set()) if known is None else (known.version(), _paths(known))
        write_deltalake(
            known or self.folder, rows, mode="overwrite", partition_by=by, predicate=where,
            schema_mode=None if where else "overwrite",
            configuration=_configuration(_SNAPSHOT_GRACE, _SNAPSHOT_GRACE),
        )  # fmt: skip
        known = known or DeltaTable(self.folder)
        if self._local is not None:
            for path in _paths(known) - old:
                durable.upwards(self._local / path, self._local)
        self._sync(before)

    def _check(self, writer: str, number: int, error: Exception | None = None) -> None:
        """Raise SinkError if the table has a batch already."""
        last = None if self._table is None else self._table.transaction_version(writer)
        if last is not None and last >= number:
            raise SinkError(
                f"{self.folder}: batch {number} cannot be added, because another process "
                f"writes batches of {writer}: end that one, and start this one again"
            ) from error

    def newest(self) -> DeltaTable | None:
        """Return the table as it is now; None if there is none."""
        if self._table is not None:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(self.folder):
            self._table = DeltaTable(self.folder)
        return self._table

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

    def _commit(
        self, known: DeltaTable | None, schema: pa.Schema, added: Sequence[Added],
        transaction: Transaction,
    ) -> None:  # fmt: skip
        before = -1 if known is None else known.version()
        now = time.time_ns() // 1_000_000
        actions = [AddAction(a.path, a.size, a.values, now, True, a.stats) for a in added]
        if known is None:
            by = self._partitions()
            whole = pa.schema([*schema, *(pa.field(name, pa.date32()) for name in by)])
            # With another try deltalake would commit it behind what another process has created,
            # which would be another table then for those that follow it.
            once = CommitProperties(app_transactions=[transaction], max_commit_retries=0)
            create_table_with_add_actions(
                self.folder, Schema.from_arrow(whole), actions, "error", by,
                configuration=_configuration(GRACE, LOG_GRACE), commit_properties=once,
            )  # fmt: skip
            self._table = DeltaTable(self.folder)
        else:
            by = known.metadata().partition_columns
            known.create_write_transaction(
                [*actions], "append", known.schema(), by,
                commit_properties=CommitProperties(app_transactions=[transaction]),
            )  # fmt: skip
        self._sync(before)

    def _sync(self, before: int) -> None:
        """Sync the log behind the version `before`. Others may have committed, too.

        Nobody could open a table whose last entry, or last checkpoint, is torn.
        """
        if self._local is None:
            return
        log = self._local / _LOG
        version = before + 1
        while (entry := log / f"{version:020d}.json").exists():
            durable.path(entry)
            if (checkpoint := log / f"{version:020d}.checkpoint.parquet").exists():
                durable.path(checkpoint)
            version += 1
        durable.upwards(log, self._local.parent)


def _paths(table: DeltaTable) -> set[str]:
    """Return the files of a table, by their paths in its folder."""
    return {*map(unquote, pa.table(table.get_add_actions())["path"].to_pylist())}


def arrow(rows: DataFrame) -> pa.Table:
    """The rows, in this process, with the types that Delta has: times in UTC alone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return rows.toArrow().cast(to_arrow_schema(rows.schema, timezone="UTC"))
