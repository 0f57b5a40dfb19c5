"""Follow a Delta table with a streaming query, in a folder or at a URL.

By the versions of its log: a trigger looks for the next version alone, however many there are. A
batch is bounded in rows and bytes, and ends at a row group of a file. What Spark gets are the
names of these; each task reads its own with `deltalake`. So Spark needs no jars for an object
store, and Java sees only the rows that a query asks it for.
"""

from __future__ import annotations

import itertools
import json
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from . import delta_files

ROWS = 1_000_000
"""Of a batch of the query that follows; a single row group may have more,"""
BYTES = 256 << 20
"""and as many bytes, as the columns take in a file before they are compressed."""
_FORMAT = "flatmq_delta"
UNIT = "path string, group int"
"""The columns of a row group."""
_READ = 65_536  # rows of a RecordBatch
_KEPT = 1000  # versions, and files, that are remembered

T = TypeVar("T")


class BatchesError(RuntimeError):
    """The table cannot be followed; the text names the folder and what to do."""


def follow(
    spark: SparkSession,
    folder: str,
    schema: str | StructType,
    rows: int = ROWS,
    size: int = BYTES,
) -> DataFrame:
    """Return the rows of the Delta table in `folder`, now and later, as a stream.

    It has the columns of `schema`. Versions that compact the table or delete from it are
    passed over.

    folder  a path or a URL that deltalake knows, which all executors can read; it may be made
            later. Columns that a file lacks are null
    rows    maximum of a batch; a single row group may have more
    size    the same in bytes, before they are compressed

    BatchesError, out of the query, if versions that come next were removed, or if the table is
    another one than before.
    """
    return _reader(spark, folder, rows, size).schema(schema).load()


def units(spark: SparkSession, folder: str) -> DataFrame:
    """As `follow`, but return the row groups in which the rows are: path and number."""
    return _reader(spark, folder, ROWS, BYTES).schema(UNIT).option("units", True).load()


def _reader(spark: SparkSession, folder: str, rows: int, size: int) -> DataStreamReader:
    spark.dataSource.register(_Delta)
    reader = spark.readStream.format(_FORMAT).option("path", folder)
    reader = reader.options(rows=rows, size=size)
    return reader.option("tasks", spark.sparkContext.defaultParallelism)


def before(
    spark: SparkSession, folder: str, offset: dict[str, Any], rows: int
) -> Iterator[DataFrame]:
    """Yield the row groups that a stream has read before an offset, about in the order of time.

    rows  of each part, about

    Raises BatchesError if they are no longer there.
    """
    reader = Reader(folder, rows)
    part: list[Unit] = []
    count = 0
    for unit in reader.before(offset):
        if part and count + unit.rows > rows:
            yield _frame(spark, part)
            part, count = [], 0
        part.append(unit)
        count += unit.rows
    if part:
        yield _frame(spark, part)


def _frame(spark: SparkSession, part: list[Unit]) -> DataFrame:
    tasks = min(len(part), spark.sparkContext.defaultParallelism)
    return spark.createDataFrame([unit[:2] for unit in part], UNIT).repartition(tasks)


def work(frame: DataFrame, function: Callable[[list[Any]], T]) -> list[T]:
    """Call a function with the rows of each task, where the task runs.

    Returns what it returned. Of row groups, this is how to read them there.
    """

    def called(*columns: pa.Array) -> pa.Array:
        rows = [*zip(*(column.to_pylist() for column in columns), strict=True)]
        return pa.array([pickle.dumps(function(rows)), *[None] * (len(rows) - 1)], pa.binary())

    # Not mapInArrow, which has PySpark ask for pandas.
    call = arrow_udf(called, "binary")  # type: ignore[call-overload]
    found = frame.select(call(*frame.columns).alias("found")).toArrow()
    return [pickle.loads(each) for each in found["found"].drop_null().to_pylist()]


def read(
    folder: str, units: Iterable[tuple[str, int] | Unit], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups, by path and number, with the columns of a schema.

    Columns that a file lacks are null. Raises BatchesError if a file is not here.
    """
    store = None
    for path, of_file in itertools.groupby(units, operator.itemgetter(0)):
        try:
            store = store or delta_files.store(folder)
            file = store.open_input_file(path)
        except (FileNotFoundError, TableNotFoundError) as error:
            raise BatchesError(
                f"{folder}: {path} is not here. Most likely the executors run on other "
                "machines, or in other containers, which do not share that folder: name a folder "
                "that the driver and all executors share (NFS, HDFS), or the URL of an object "
                "store with --state, or run with --master 'local[*]'"
            ) from error
        with file:
            parquet = pq.ParquetFile(file)
            there = [n for n in schema.names if n in parquet.schema_arrow.names]
            groups = [unit[1] for unit in of_file]
            for batch in parquet.iter_batches(_READ, row_groups=groups, columns=there):
                yield delta_files.fitting(batch, schema)


class _Delta(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        rows, size, tasks = (int(self.options[name]) for name in ("rows", "size", "tasks"))
        wanted = None if "units" in self.options else to_arrow_schema(schema, timezone="UTC")
        return Reader(self.options["path"], rows, size, tasks, wanted)


class Unit(NamedTuple):
    """A row group of a file, and its size."""

    path: str
    group: int
    rows: int
    bytes: int


class Units(InputPartition):
    """Some of the row groups of a table: those of a task."""

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(None)
        self.units = units


class Position(NamedTuple):
    """The row group that comes next.

    Its file is one of those that a version of the log adds, or, where the stream begins, one of
    all that the table has in that version.
    """

    version: int
    file: int
    group: int
    whole: bool

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Position:
        """Return the position in an offset."""
        version, file, group = (int(offset[name]) for name in ("version", "file", "group"))
        return cls(version, file, group, bool(offset["whole"]))


class Reader(DataSourceStreamReader):
    """Finds the row groups that come next. An offset is a position, and the table's identity."""

    def __init__(
        self, folder: str, rows: int = ROWS, size: int = BYTES, tasks: int = 1,
        wanted: pa.Schema | None = None,
    ) -> None:  # fmt: skip
        """`rows` and `size` bound a batch, in so many `tasks`. `wanted` are the columns to read;
        None for the names of row groups alone."""
        self.folder = folder
        self._rows = rows
        self._size = size
        self._tasks = tasks
        self._wanted = wanted
        self._id: str | None = None
        self._kept: dict[tuple[int, bool], list[str]] = {}
        self._groups_of: dict[str, list[Unit]] = {}

    def _opened(self, version: int | None = None) -> DeltaTable | None:
        if not DeltaTable.is_deltatable(self.folder):
            return None
        return DeltaTable(self.folder, version=version)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before what the table has now, if it exists."""
        found = self._opened()
        if found is None:
            return self._offset(Position(0, 0, 0, False))
        self._id = str(found.metadata().id)
        return self._offset(Position(found.version(), 0, 0, True))

    def _offset(self, at: Position) -> dict[str, Any]:
        offset: dict[str, Any] = at._asdict()
        return {"table": self._id, **offset}

    def _known(self, offset: dict[str, Any]) -> Position:
        """Return the place of a checkpoint, if the table can be followed from there."""
        at = Position.of(offset)
        if self._id is None:
            found = self._opened()
            if found is not None:
                self._id = str(found.metadata().id)
                if offset["table"] not in (None, self._id):
                    raise BatchesError(
                        f"{self.folder} is another table than before: remove what was made of "
                        "it, with its checkpoint, and start again"
                    )
                if found.version() >= at.version and self._files(at) is None:
                    raise BatchesError(
                        f"{self.folder}: version {at.version} of the log was removed before it "
                        "was read: remove what was made of the table, with its checkpoint, and "
                        "start again"
                    )
        return at

    def _files(self, at: Position) -> list[str] | None:
        """The files among which the position is; None if that version is not there."""
        key = at.version, at.whole
        if key not in self._kept:
            found = self._all(at.version) if at.whole else self._added(at.version)
            if found is None:
                return None
            if len(self._kept) > _KEPT:
                self._kept.clear()
            self._kept[key] = found
        return self._kept[key]

    def _all(self, version: int | None) -> list[str]:
        """Return the files of the table in a version, by the times of their rows if known."""
        found = self._opened(version)
        if found is None:
            return []
        actions = pa.table(found.get_add_actions(flatten=True))
        times = [
            name for name in actions.column_names
            if name.startswith("min.") and pa.types.is_timestamp(actions.schema.field(name).type)
        ]  # fmt: skip
        rows = actions.select(["path", *times[:1]]).to_pylist()
        keys = [(str(row[times[0]] if times else ""), unquote(row["path"])) for row in rows]
        return [path for _, path in sorted(keys)]

    def _added(self, version: int) -> list[str] | None:
        """Return the files that a version appends; none if it rewrites existing rows."""
        if self._id is None:
            return None
        store = delta_files.store(self.folder)
        path = f"_delta_log/{version:020d}.json"
        if store.get_file_info(path).type is FileType.NotFound:
            return None
        with store.open_input_file(path) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line]
        if any("remove" in action for action in actions):
            return []
        return [unquote(action["add"]["path"]) for action in actions if "add" in action]

    def _groups(self, path: str) -> list[Unit]:
        """Return the row groups of a file. Raises BatchesError if it was removed."""
        if path not in self._groups_of:
            try:
                store = delta_files.store(self.folder)
                found = pq.read_metadata(path, filesystem=store)
            except FileNotFoundError as error:
                raise BatchesError(
                    f"{self.folder}: {path} was removed before it was read: remove what was made "
                    "of the table, with its checkpoint, and start again"
                ) from error
            if len(self._groups_of) > _KEPT:
                self._groups_of.clear()
            groups = enumerate(map(found.row_group, range(found.num_row_groups)))
            self._groups_of[path] = [
                Unit(path, n, group.num_rows, group.total_byte_size) for n, group in groups
            ]
        return self._groups_of[path]

    def getDefaultReadLimit(self) -> ReadLimit:
        """The rows of a batch."""
        return ReadMaxRows(self._rows)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The position after the last file that is there, or an earlier one by the limit."""
        at = self._known(start or self.initialOffset())
        rows = size = 0
        while (there := self._files(at)) is not None:
            for path in there[at.file :] if isinstance(limit, ReadMaxRows) else ():
                for unit in self._groups(path)[at.group :]:
                    rows += unit.rows
                    size += unit.bytes
                    is_more = rows > self._rows or size > self._size
                    if is_more and rows > unit.rows:  # not the first
                        return self._offset(at)
                    at = at._replace(group=at.group + 1)
                at = at._replace(file=at.file + 1, group=0)
            at = Position(at.version + 1, 0, 0, False)
        return self._offset(at)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The row groups between these positions, about as many for each task."""
        at, last = self._known(start), self._known(end)
        if at.whole and (last.version, last.whole) < (at.version, True):
            # The first batch, done again after a kill: Spark asked again where the table begins,
            # which has grown since. The batch is everything before its end.
            units = [*self.before(end)]
        else:
            units = [*self._between(at, last)]
        parts = min(len(units), self._tasks)
        cuts = [len(units) * i // parts for i in range(parts + 1)] if parts else []
        return [Units(units[a:b]) for a, b in itertools.pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, or its row groups. Has no side effects."""
        assert isinstance(partition, Units)
        if self._wanted is not None:
            yield from read(self.folder, partition.units, self._wanted)
            return
        paths, groups, *_ = zip(*partition.units, strict=True)
        yield pa.RecordBatch.from_pydict(
            {"path": pa.array(paths), "group": pa.array(groups, pa.int32())}
        )

    def _between(self, at: Position, last: Position) -> Iterator[Unit]:
        while at != last:
            there = self._files(at)
            if there is None:
                raise BatchesError(
                    f"{self.folder}: version {at.version} of the log was removed before it was "
                    "read"
                )
            same = (at.version, at.whole) == (last.version, last.whole)
            for n, path in enumerate(there[at.file :], at.file):
                if same and (n, 0) >= last[1:3]:
                    break
                first = at.group if n == at.file else 0
                yield from self._groups(path)[
                    first : last.group if same and n == last.file else None
                ]
            at = last if same else Position(at.version + 1, 0, 0, False)

    def before(self, offset: dict[str, Any]) -> Iterator[Unit]:
        """Yield the row groups before an offset. Raises BatchesError."""
        last = self._known(offset)
        if last.whole:
            yield from self._between(Position(last.version, 0, 0, True), last)
            return
        newest = Position.of(self.latestOffset(offset))
        rest = next(self._between(last, newest), None) is not None
        if rest and not last.version:
            yield from self._between(Position(0, 0, 0, False), last)
            return
        # The table of then may be gone, which is no matter if nothing was added since.
        version = (last if rest else newest).version - 1
        try:
            files = self._all(version)
        except DeltaError as error:
            raise BatchesError(
                f"{self.folder}: version {version} of the table was removed"
            ) from error
        for path in files:
            yield from self._groups(path)
        if rest:
            yield from self._between(Position(last.version, 0, 0, False), last)

    def is_read(self, offset: dict[str, Any]) -> bool:
        """Return whether nothing comes after an offset."""
        last, newest = self._known(offset), Position.of(self.latestOffset(offset))
        return next(self._between(last, newest), None) is None
