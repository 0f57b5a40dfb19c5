"""Files of a Delta table, written where the rows are: by the driver, or by an executor.

No reader looks at them until they are committed: see `delta`.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from . import durable

DAY = "day"
"""The column that a table is partitioned by: a date, in UTC."""
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
_COMPRESSION = "zstd"
_TEXT = 32  # characters of a bound in the log
_LAST = "\U0010ffff"
# Of a row group: the smallest piece that a query reads.
_ROWS = 100_000
_BYTES = 16 << 20

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def store(folder: str) -> PyFileSystem:
    """The files in the folder of a table, by their paths in it."""
    return PyFileSystem(DeltaStorageHandler(folder))


class Added(NamedTuple):
    """A file that is written, and not yet committed."""

    path: str
    """In the folder of the table."""
    size: int
    rows: int
    values: dict[str, str | None]
    """Of the columns that the table is partitioned by."""
    stats: str


class Files:
    """Writes rows to files of a table, one for each day, which no reader looks at yet.

    columns  those of the table in a file, if it exists
    """

    def __init__(self, folder: str, by_day: str | None, columns: pa.Schema | None) -> None:
        self.folder = folder
        self._by_day = by_day
        self._columns = columns
        self.added: list[Added] = []
        """The files, in the order of their first rows; once they are closed."""

    def __enter__(self) -> Files:
        self._store: PyFileSystem | None = None  # without rows there is not even a folder
        self._writers: dict[str | None, tuple[str, pq.ParquetWriter]] = {}
        self.added = []
        return self

    def write(self, rows: pa.Table) -> None:
        """Write rows, in their order."""
        if self._store is None:
            if "://" not in self.folder:
                Path(self.folder).mkdir(parents=True, exist_ok=True)
            self._store = store(self.folder)
        for day, of_day in _by_day(rows, self._by_day) if self._by_day else [(None, rows)]:
            whole = of_day if self._columns is None else fitting(of_day, self._columns)
            if day not in self._writers:
                name = f"part-{uuid.uuid4().hex}.parquet"
                path = f"{DAY}={day or _NO_DAY}/{name}" if self._by_day else name
                writer = pq.ParquetWriter(
                    path, whole.schema, filesystem=self._store, compression=_COMPRESSION
                )
                self._writers[day] = path, writer
            group = max(1, min(_ROWS, _BYTES * len(whole) // max(1, whole.nbytes)))
            self._writers[day][1].write_table(whole, group)

    def __exit__(self, *raised: object) -> None:
        for _, writer in self._writers.values():
            writer.close()
        if self._store is None or raised[0] is not None:
            return
        for day, (path, _) in self._writers.items():
            found = pq.read_metadata(path, filesystem=self._store)
            if "://" not in self.folder:
                durable.upwards(Path(self.folder) / path, Path(self.folder))
            values: dict[str, str | None] = {DAY: day} if self._by_day else {}
            size = self._store.get_file_info(path).size
            stats = json.dumps(_stats(found))
            self.added.append(Added(path, size, found.num_rows, values, stats))


def fitting(rows: Rows, schema: pa.Schema) -> Rows:
    """Return the rows with the columns of a schema, null in those that they lack."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def _by_day(rows: pa.Table, column: str | None) -> list[tuple[str | None, pa.Table]]:
    """Return the rows of each day, in UTC, of a timestamp column."""
    days = pc.cast(rows[column], pa.timestamp("us", "UTC")).cast(pa.date32())
    found = pc.unique(days).to_pylist()
    if len(found) == 1:
        return [(found[0] and found[0].isoformat(), rows)]
    return [
        (day and day.isoformat(), rows.filter(pc.is_in(days, pa.array([day], pa.date32()))))
        for day in found
    ]


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
