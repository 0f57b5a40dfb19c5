"""Follow a Delta table with a streaming query, in a folder or at a URL.

By the versions of its log: a trigger looks for the next version alone, however many there are.
Files are read with `deltalake`, so Spark needs no jars for an object store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileType, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from . import delta
from .batches import ROWS, BatchesError

_FORMAT = "flatmq_delta"
_READ = 65_536  # rows of a RecordBatch


def follow(
    spark: SparkSession,
    folder: str,
    schema: str | StructType,
    rows: int = ROWS,
    storage_options: dict[str, str] | None = None,
) -> DataFrame:
    """Return the rows of the Delta table in `folder`, now and later, as a stream.

    It has the columns of `schema`. Versions that compact the table or delete from it are
    passed over.

    folder  a path or a URL that deltalake knows, which all executors can read; it may be made
            later. Columns that a file lacks are null
    rows    at most, of a batch; a single file may have more

    BatchesError, out of the query, if versions that come next were removed, or if the table is
    another one than before.
    """
    spark.dataSource.register(_Delta)
    reader = spark.readStream.format(_FORMAT).schema(schema).option("path", folder)
    return reader.options(rows=rows, storage=json.dumps(storage_options)).load()


def table(
    spark: SparkSession,
    folder: str,
    schema: str | StructType,
    storage_options: dict[str, str] | None = None,
) -> DataFrame:
    """The rows that the Delta table in `folder` has now, with the columns of `schema`."""
    spark.dataSource.register(_Delta)
    reader = spark.read.format(_FORMAT).schema(schema).option("path", folder)
    return reader.option("storage", json.dumps(storage_options)).load()


class _Delta(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self.options["path"], schema, json.loads(self.options["storage"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        storage = json.loads(self.options["storage"])
        return Reader(self.options["path"], schema, int(self.options["rows"]), storage)


class Files(InputPartition):
    """Some of the files of a table."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


class _File(NamedTuple):
    path: str
    rows: int


class _Table:
    """The part that both readers share."""

    def __init__(
        self, folder: str, schema: StructType, storage_options: dict[str, str] | None
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._storage = storage_options

    def _store(self) -> PyFileSystem:
        return delta.files(self._folder, self._storage)

    def _opened(self, version: int | None = None) -> DeltaTable | None:
        if not DeltaTable.is_deltatable(self._folder, self._storage):
            return None
        return DeltaTable(self._folder, version=version, storage_options=self._storage)

    def _snapshot(self, table: DeltaTable) -> list[_File]:
        actions = pa.table(table.get_add_actions()).select(["path", "num_records"]).to_pylist()
        return sorted(_File(unquote(one["path"]), one["num_records"] or 0) for one in actions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files. Has no side effects."""
        assert isinstance(partition, Files)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        store = self._store()
        for path in partition.paths:
            with store.open_input_file(path) as file:
                parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
                there = [n for n in schema.names if n in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(_READ, columns=there):
                    columns = [
                        batch.column(f.name).cast(f.type)
                        if f.name in there
                        else pa.nulls(len(batch), f.type)
                        for f in schema
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)


class TableReader(_Table, DataSourceReader):
    """A reader of what the table has now."""

    def partitions(self) -> list[InputPartition]:
        """The files, about as many for each processor."""
        found = self._opened()
        return _parts([] if found is None else [file.path for file in self._snapshot(found)])


class _Position(NamedTuple):
    """The file that comes next.

    It is one of those that a version of the log adds, or, where the stream begins, one of all
    that the table has in that version.
    """

    version: int
    file: int
    whole: bool


class Reader(_Table, DataSourceStreamReader):
    """An offset is a position, and the identity of the table."""

    def __init__(
        self, folder: str, schema: StructType, rows: int, storage_options: dict[str, str] | None
    ) -> None:
        super().__init__(folder, schema, storage_options)
        self._rows = rows
        self._id: str | None = None
        self._kept: dict[tuple[int, bool], list[_File]] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before what the table has now, if it exists."""
        found = self._opened()
        if found is None:
            return self._offset(_Position(0, 0, False))
        self._id = str(found.metadata().id)
        return self._offset(_Position(found.version(), 0, True))

    def _offset(self, at: _Position) -> dict[str, Any]:
        offset: dict[str, Any] = at._asdict()
        return {"table": self._id, **offset}

    def _known(self, offset: dict[str, Any]) -> _Position:
        """Return the place of a checkpoint, if the table can be followed from there."""
        at = _Position(int(offset["version"]), int(offset["file"]), bool(offset["whole"]))
        if self._id is None:
            found = self._opened()
            if found is not None:
                self._id = str(found.metadata().id)
                if offset["table"] not in (None, self._id):
                    raise BatchesError(
                        f"{self._folder} is another table than before: remove what was made of "
                        "it, with its checkpoint, and start again"
                    )
                if found.version() >= at.version and self._files(at) is None:
                    raise BatchesError(
                        f"{self._folder}: version {at.version} of the log was removed before it "
                        "was read: remove what was made of the table, with its checkpoint, and "
                        "start again"
                    )
        return at

    def _files(self, at: _Position) -> list[_File] | None:
        """The files among which the position is; None if that version is not there."""
        key = at.version, at.whole
        if key not in self._kept:
            found = self._all(at.version) if at.whole else self._added(at.version)
            if found is None:
                return None
            if len(self._kept) > ROWS // 1000:
                self._kept.clear()
            self._kept[key] = found
        return self._kept[key]

    def _all(self, version: int) -> list[_File]:
        found = self._opened(version)
        return [] if found is None else self._snapshot(found)

    def _added(self, version: int) -> list[_File] | None:
        """Return the files that a version appends; none if it rewrites existing rows."""
        if self._id is None:
            return None
        store = self._store()
        path = f"_delta_log/{version:020d}.json"
        if store.get_file_info(path).type is FileType.NotFound:
            return None
        with store.open_input_file(path) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line]
        if any("remove" in action for action in actions):
            return []
        added = [action["add"] for action in actions if "add" in action]
        return [
            _File(unquote(one["path"]), json.loads(one.get("stats") or "{}").get("numRecords", 0))
            for one in added
        ]

    def getDefaultReadLimit(self) -> ReadLimit:
        """The rows of a batch."""
        return ReadMaxRows(self._rows)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The position after the last file that is there, or an earlier one by the limit."""
        at = self._known(start or self.initialOffset())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        rows = 0
        while (there := self._files(at)) is not None:
            for file in there[at.file :]:
                if most is not None and rows and rows + file.rows > most:
                    return self._offset(at)
                rows += file.rows
                at = at._replace(file=at.file + 1)
            at = _Position(at.version + 1, 0, False)
        return self._offset(at)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files between these positions, about as many for each processor."""
        at, last = self._known(start), self._known(end)
        if (at.version, not at.whole, at.file) > (last.version, not last.whole, last.file):
            # The first batch, done again after a kill: Spark asked again where the table begins,
            # which has grown since. The batch is everything before its end.
            at = _Position(last.version - (not last.whole), 0, True)
            if at.version < 0:
                return []
        paths: list[str] = []
        while at != last:
            there = self._files(at)
            if there is None:
                raise BatchesError(
                    f"{self._folder}: version {at.version} of the log was removed before it was "
                    "read"
                )
            same = at[::2] == last[::2]
            paths += [file.path for file in there[at.file : last.file if same else None]]
            at = last if same else _Position(at.version + 1, 0, False)
        return _parts(paths)


def _parts(paths: list[str]) -> list[InputPartition]:
    parts = min(len(paths), os.cpu_count() or 1)
    return [Files(paths[i::parts]) for i in range(parts)]
