"""A stream of the rows of a table that grows by a folder `batch=N` per batch.

`sinks.Parquet` writes such a table.

It goes by the numbers. Spark's own source of files lists the whole table at every trigger, and
remembers the name of every file; here a trigger asks for the next folder alone, however many there
are, and what is remembered is a number.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

OWNER = "_query.json"  # in the folder: whose batches these are
PREFIX = "batch="
ROWS = 1_000_000  # of a batch of the query that follows, where its first folder has fewer
_FORMAT = "flatmq_batches"
_READ = 65_536  # rows of a RecordBatch


class BatchesError(RuntimeError):
    """The table cannot be followed; the text names the folder and what to do."""


def follow(
    spark: SparkSession, folder: str, schema: str | StructType, rows: int = ROWS
) -> DataFrame:
    """Return the rows of the table in `folder`, now and later, as a stream with this `schema`.

    folder  a path or a URL that fsspec knows, which all executors can read; it need not be there
    rows    maximum rows of a batch; a single folder may have more

    The query raises BatchesError when the batches that it needs were removed, or are of another
    query than before.
    """
    spark.dataSource.register(_Batches)
    reader = spark.readStream.format(_FORMAT).schema(schema)
    return reader.option("path", folder).option("rows", rows).load()


class _Batches(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Reader(self.options["path"], schema, int(self.options["rows"]))


class Files(InputPartition):
    """Some of the files of a batch."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


class Reader(DataSourceStreamReader):
    """An offset is the number of the folder to come, and the query that writes the table."""

    def __init__(self, folder: str, schema: StructType, rows: int) -> None:
        self._folder = folder
        self._schema = schema
        self._rows = rows
        self._looked = False

    def _table(self) -> tuple[fsspec.AbstractFileSystem, str]:
        fs, root = fsspec.core.url_to_fs(self._folder)
        # What another process writes is seen when it is there.
        fs.invalidate_cache()
        return fs, root

    def _owner(self) -> str | None:
        fs, root = self._table()
        if not fs.exists(f"{root}/{OWNER}"):
            return None
        return str(json.loads(fs.cat_file(f"{root}/{OWNER}"))["query"])

    def _offset(self, batch: int) -> dict[str, Any]:
        return {"query": self._owner(), "batch": batch}

    def _first(self) -> int | None:
        fs, root = self._table()
        names = (path.rpartition("/")[2] for path in fs.ls(root, detail=False))
        return min(
            (int(name[len(PREFIX) :]) for name in names if name.startswith(PREFIX)), default=None
        )

    def _known(self, offset: dict[str, Any]) -> int:
        """Return the place of a checkpoint, if the table can be followed from there."""
        batch, query = int(offset["batch"]), offset["query"]
        if query not in (None, self._owner()):
            raise BatchesError(
                f"{self._folder} is of another query than before: remove what was made of it, "
                "with its checkpoint, and start again"
            )
        if not self._looked:
            fs, root = self._table()
            first = self._first() if fs.exists(root) else None
            if first is not None and first > batch:
                raise BatchesError(
                    f"{self._folder} begins with batch {first}: {batch} was removed before it "
                    "was read"
                )
            self._looked = True
        return batch

    def initialOffset(self) -> dict[str, Any]:
        """The first batch that there is."""
        fs, root = self._table()
        return self._offset(self._first() or 0 if fs.exists(root) else 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The rows of a batch."""
        return ReadMaxRows(self._rows)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The batch after the last one that is there, or an earlier one by the limit."""
        batch = self._known(start or self.initialOffset())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        rows = 0
        for number in itertools.count(batch):
            files = self._files(number)
            if files is None:
                return self._offset(number)
            if most is not None:
                rows += sum(self._count(file) for file in files)
                if rows > most:
                    return self._offset(max(number, batch + 1))
        raise AssertionError

    def _files(self, batch: int) -> list[str] | None:
        """The files of a batch; None where it is not there."""
        fs, root = self._table()
        try:
            paths = fs.ls(f"{root}/{PREFIX}{batch}", detail=False)
        except FileNotFoundError:
            return None
        return sorted(path for path in paths if path.endswith(".parquet"))

    def _count(self, path: str) -> int:
        with self._table()[0].open(path, "rb") as file:
            return int(pq.read_metadata(file).num_rows)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The files of these batches, about as many for each processor."""
        paths: list[str] = []
        for number in range(self._known(start), self._known(end)):
            files = self._files(number)
            if files is None:
                raise BatchesError(
                    f"{self._folder}/{PREFIX}{number} was removed before it was read"
                )
            paths += files
        parts = min(len(paths), os.cpu_count() or 1)
        return [Files(paths[i::parts]) for i in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files. Has no side effects."""
        assert isinstance(partition, Files)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        fs, _ = self._table()
        for path in partition.paths:
            with fs.open(path, "rb") as file:
                # Spark writes times as INT96, of which only the unit of Arrow's is ours to choose.
                table = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
                for batch in table.iter_batches(_READ, columns=schema.names):
                    columns = [batch.column(f.name).cast(f.type) for f in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
