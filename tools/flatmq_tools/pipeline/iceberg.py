"""Iceberg tables that have every batch once, written with `pyiceberg`.

The number of the last batch of a query is a property of the table, set in the commit that adds
the rows of that batch. So a table has both or neither, and the number outlives the snapshots.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from .sinks import SinkError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

NAME = "flatmq"
"""The name of a catalog unless its properties have one."""

_LAST = "flatmq.last-batch."  # a property of the table: the id of the query follows
_TRIES = 20  # commits of a batch; each fails only if another writer has committed meanwhile
_HISTORY = datetime.timedelta(hours=1)  # for which snapshots are kept
_EXPIRE = 100  # batches between two looks for older ones
_SYNCED = f"{__package__}.iceberg_files.SyncedFiles"
# Each commit writes a list of all manifests and of all snapshots: without these both would grow
# with each batch.
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


def local_catalog(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog in a local folder.

    It is an SQLite database, beside the tables.
    """
    where = folder.absolute()
    return {
        "type": "sql",
        "uri": f"sqlite:///{where}/catalog.db",
        "warehouse": where.as_uri(),
    }


_OPENING = threading.Lock()  # held while a table opens its catalog


class Iceberg:
    """An Iceberg table, written by the process of the driver.

    A batch passes through the driver's memory: bound it with maxOffsetsPerTrigger. On a disk of
    this machine, files are synced before they are committed.

    table        "namespace.name"; both are made if they are not there
    catalog      properties of the catalog, as `pyiceberg.catalog.load_catalog` takes them: type,
                 uri, warehouse, credential; `name` is its name, "flatmq" unless given
    add_columns  True: the table gets the columns that it lacks, null in the rows that it has;
                 else a batch with other columns is refused
    """

    def __init__(
        self, table: str, catalog: Mapping[str, str], *, add_columns: bool = False
    ) -> None:
        self.table = table
        self.rows = 0
        """Rows written since this was made."""
        self._options = dict(catalog)
        self._add_columns = add_columns
        self._catalog: Catalog | None = None
        self._lock = threading.Lock()

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        """Return whether the table holds that batch of the query already."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return _has(self._opened().load_table(self.table), query, batch_id)
        except NoSuchTableError:
            return False

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch, whole or not at all, unless the table has it already.

        Raises SinkError if other writers never leave room for it.
        """
        from pyiceberg.exceptions import CommitFailedException

        found = _arrow(rows)
        for _ in range(_TRIES):
            table = self._loaded(found.schema)
            # Another driver of the same query may have committed it since `has`. A batch without
            # rows needs no commit: done again, it has none again.
            if not found.num_rows or _has(table, query, batch_id):
                return
            try:
                self._append(table, found, query, batch_id)
            except CommitFailedException:
                continue
            self.rows += found.num_rows
            if batch_id % _EXPIRE == _EXPIRE - 1:
                self._expire()
            return
        raise SinkError(
            f"{self.table}: {_TRIES} commits of batch {batch_id} have failed, because others "
            "write to the table all the time"
        )

    def _append(self, table: Table, found: pa.Table, query: str, batch_id: int) -> None:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import TableProperties

        # pyiceberg would put a batch that comes second behind the one that came first, without a
        # look at whether that is the same batch. This is a copy of the properties: the table in
        # the catalog does not get this one.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        transaction = table.transaction()
        try:
            if self._add_columns:
                with transaction.update_schema() as schema:
                    schema.union_by_name(found.schema)
            transaction.append(found, {"flatmq.query": query, "flatmq.batch": str(batch_id)})
        except (ValueError, ValidationError) as error:
            raise SinkError(
                f"{self.table} does not take the columns of the batch: {error}"
            ) from error
        transaction.set_properties({_LAST + query: str(batch_id)})
        transaction.commit_transaction()

    def _expire(self) -> None:
        """Forget the snapshots of long ago. Their data files stay: the table has them."""
        from pyiceberg.exceptions import CommitFailedException

        before = datetime.datetime.now() - _HISTORY
        table = self._opened().load_table(self.table)
        with contextlib.suppress(CommitFailedException):  # the next look finds them again
            table.maintenance.expire_snapshots().older_than(before).commit()

    def _loaded(self, schema: pa.Schema) -> Table:
        """Return the table; made with these columns if it is not there."""
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._opened()
        try:
            return catalog.load_table(self.table)
        except NoSuchTableError:
            namespace = self.table.rpartition(".")[0]
            catalog.create_namespace_if_not_exists(namespace)
            optional = pa.schema([column.with_nullable(True) for column in schema])
            return catalog.create_table_if_not_exists(self.table, optional, properties=_PROPERTIES)

    def _opened(self) -> Catalog:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise SinkError("Iceberg tables need: pip install 'flatmq[iceberg]'") from error

        with self._lock:
            if self._catalog is None:
                options = dict(self._options)
                warehouse = options.get("warehouse", "")
                if warehouse.startswith("file:"):
                    Path(warehouse.removeprefix("file:").replace("//", "/")).mkdir(
                        parents=True, exist_ok=True
                    )
                    options.setdefault("py-io-impl", _SYNCED)
                # A catalog in a database makes its tables, and two at once would fail.
                with _OPENING:
                    self._catalog = load_catalog(options.pop("name", NAME), **options)
            return self._catalog


def _has(table: Table, query: str, batch_id: int) -> bool:
    last = table.properties.get(_LAST + query)
    return last is not None and int(last) >= batch_id


def _arrow(rows: DataFrame) -> pa.Table:
    """Return the rows with their times in UTC.

    Arrow has them in the zone of the session, and Iceberg only in UTC.
    """
    table = rows.toArrow()
    return table.cast(pa.schema([_in_utc(column) for column in table.schema]))


def _in_utc(column: pa.Field) -> Any:
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        return column.with_type(pa.timestamp("us", "UTC"))
    return column
