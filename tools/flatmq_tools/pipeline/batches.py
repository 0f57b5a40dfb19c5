"""Follow a table that grows by batches (`by_day.ByDay`, `sinks.Parquet`) with a streaming query.

By the numbers of its batches. Spark's own source of files lists the whole table at every trigger,
remembers the name of every file, and would read rows again after they were merged into another
file; here a trigger asks for the next batch alone, and what is remembered is a number.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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

from .layout import PREFIX, Piece, Table

ROWS = 1_000_000  # of a batch of the query that follows, unless its first one has more
_FORMAT = "flatmq_batches"
_READ = 65_536  # rows of a RecordBatch
_TRIES = 100  # times that files were merged between looking for them and opening them


class BatchesError(RuntimeError):
    """The table cannot be followed; the text names the folder and what to do."""


def follow(
    spark: SparkSession, folder: str, schema: str | StructType, rows: int = ROWS
) -> DataFrame:
    """Return the rows of the table in `folder`, now and later, as a stream with this `schema`.
    Each comes once, whatever is merged meanwhile.

    folder  a path or a URL that fsspec knows, which all executors can read; it need not be there
    rows    maximum rows of a batch; a single batch of the table may have more

    The query raises BatchesError when the batches that it needs were removed, or are of another
    query than before.
    """
    spark.dataSource.register(_Batches)
    reader = spark.readStream.format(_FORMAT).schema(schema)
    return reader.option("path", folder).option("rows", rows).load()


def table(
    spark: SparkSession, folder: str, schema: str | StructType, first: int, end: int
) -> DataFrame:
    """Return the rows of batches of the table in `folder`, with the columns of `schema`.

    They are the batches from `first` to before `end` that are there.
    """
    spark.dataSource.register(_Batches)
    reader = spark.read.format(_FORMAT).schema(schema).option("path", folder)
    return reader.option("first", first).option("end", end).load()


class _Batches(DataSource):
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        first, end = int(self.options["first"]), int(self.options["end"])
        return RangeReader(self.options["path"], schema, first, end)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Reader(self.options["path"], schema, int(self.options["rows"]))


class Pieces(InputPartition):
    """Some of the rows of batches."""

    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class _Rows:
    """The part that both readers share."""

    def __init__(self, folder: str, schema: StructType) -> None:
        self._folder = folder
        self._schema = schema
        self._known: Table | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}

    def _table(self) -> Table:
        if self._known is None:
            self._known = Table(self._folder)
        # What another process writes is seen when it is there.
        self._known.refresh()
        return self._known

    def _pieces(self, first: int, end: int) -> list[Piece]:
        """Return where the rows of these batches are.

        Raises BatchesError if one of them was removed.
        """
        known = self._table()
        numbers = range(first, end)
        if known.has_records():
            records = {n: known.record(n) for n in known.recorded() if n in numbers}
            days: set[str] | None = None  # all
            if len(records) == len(numbers) and None not in records.values():
                days = {day for record in records.values() if record for day in record.days}
            found = known.of_days(first, end, days)
            missing = [n for n, record in records.items() if record and record.rows]
        else:
            some = {n: known.without_day(n) for n in numbers}
            found = {n: pieces for n, pieces in some.items() if pieces is not None}
            missing = list(numbers)
        for number in missing:
            if number not in found:
                raise BatchesError(
                    f"{self._folder}/{PREFIX}{number} was removed before it was read"
                )
        return [piece for number in sorted(found) for piece in found[number]]

    def _parts(self, pieces: list[Piece]) -> list[InputPartition]:
        """Partitions of these rows, about as many as there are processors."""
        parts = min(len(pieces), os.cpu_count() or 1)
        if len({piece.path for piece in pieces}) < len(pieces):  # merged: what lies together stays
            each = -(-len(pieces) // parts)
            return [Pieces(pieces[n : n + each]) for n in range(0, len(pieces), each)]
        return [Pieces(pieces[n::parts]) for n in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Has no side effects."""
        assert isinstance(partition, Pieces)
        left = list(partition.pieces)
        tries = 0
        while left:
            path = left[0].path
            together = [piece for piece in left if piece.path == path]
            try:
                file = self._table().fs.open(path, "rb")
            except FileNotFoundError:
                tries += 1
                if tries > _TRIES:
                    raise
                left = self._found_again(left)
                continue
            with file:
                yield from self._of_file(file, together)
            left = [piece for piece in left if piece.path != path]

    def _found_again(self, pieces: list[Piece]) -> list[Piece]:
        """Return where rows are that were merged into another file."""
        numbers = [piece.batch for piece in pieces]
        days = {piece.day for piece in pieces if piece.day}
        found = self._table().of_days(min(numbers), max(numbers) + 1, days)
        now = {piece[:3]: piece for some in found.values() for piece in some}
        for piece in pieces:
            if piece[:3] not in now:
                raise BatchesError(
                    f"{self._folder}/{piece.day}/{PREFIX}{piece.batch} was removed before it was "
                    "read"
                )
        return [now[piece[:3]] for piece in pieces]

    def _of_file(self, file: Any, pieces: list[Piece]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        # Spark writes times as INT96, of which only the unit of Arrow's is ours to choose.
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        for start, end in _ranges(pieces, parquet.metadata.num_rows):
            for batch in _rows(parquet, schema.names, start, end):
                columns = [batch.column(f.name).cast(f.type) for f in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _ranges(pieces: list[Piece], rows: int) -> Iterator[tuple[int, int]]:
    """The rows of a file that these are, from and to before, as few ranges as that takes."""
    begin = end = 0
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if piece.start != end:
            if end > begin:
                yield begin, end
            begin = piece.start
        end = piece.start + (rows if piece.rows is None else piece.rows)
    if end > begin:
        yield begin, end


def _rows(
    parquet: pq.ParquetFile, names: list[str], start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a file, of those row groups alone in which they are."""
    groups, at = [], 0
    skipped = 0
    for group in range(parquet.metadata.num_row_groups):
        count = parquet.metadata.row_group(group).num_rows
        if at + count <= start:
            skipped += count
        elif at < end:
            groups.append(group)
        at += count
    at = skipped
    for batch in parquet.iter_batches(_READ, row_groups=groups, columns=names):
        first, last = max(start - at, 0), min(end - at, len(batch))
        at += len(batch)
        if first < last:
            yield batch.slice(first, last - first)


class RangeReader(_Rows, DataSourceReader):
    """Reads some of the batches as they are now."""

    def __init__(self, folder: str, schema: StructType, first: int, end: int) -> None:
        super().__init__(folder, schema)
        self._first = first
        self._end = end

    def partitions(self) -> list[InputPartition]:
        """The rows of these batches."""
        return self._parts(self._pieces(self._first, self._end))


class Reader(_Rows, DataSourceStreamReader):
    """An offset is the number of the batch to come, and the query that writes the table."""

    def __init__(self, folder: str, schema: StructType, rows: int) -> None:
        super().__init__(folder, schema)
        self._most = rows
        self._looked = False

    def _offset(self, batch: int) -> dict[str, Any]:
        return {"query": self._table().owner(), "batch": batch}

    def _checked(self, offset: dict[str, Any]) -> int:
        """The batch of a checkpoint's offset, if the table can be followed from there."""
        batch, query = int(offset["batch"]), offset["query"]
        if query not in (None, self._table().owner()):
            raise BatchesError(
                f"{self._folder} is of another query than before: remove what was made of it, "
                "with its checkpoint, and start again"
            )
        if not self._looked:
            first = self._first()
            if first is not None and first > batch and not self._without_rows(batch, first):
                raise BatchesError(
                    f"{self._folder} begins with batch {first}: {batch} was removed before it "
                    "was read"
                )
            self._looked = True
        return batch

    def _without_rows(self, batch: int, end: int) -> bool:
        """Return whether the batches from `batch` to before `end` have records, and no rows."""
        known = self._table()
        records = (known.record(number) for number in range(batch, end))
        return all(record is not None and not record.rows for record in records)

    def _first(self) -> int | None:
        known = self._table()
        return known.first() if known.is_there() else None

    def initialOffset(self) -> dict[str, Any]:
        """The first batch that there is."""
        return self._offset(self._first() or 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The rows of a batch."""
        return ReadMaxRows(self._most)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The batch after the last one that is there, or an earlier one by the limit."""
        batch = self._checked(start or self.initialOffset())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        rows, end = 0, batch
        for number, count in self._counts(batch, most is not None):
            rows += count
            if most is not None and rows > most:
                return self._offset(max(number, batch + 1))
            end = number + 1
        return self._offset(end)

    def _counts(self, batch: int, needed: bool) -> Iterator[tuple[int, int]]:
        """The batches that are there from `batch` on, and the rows of each if they are needed."""
        known = self._table()
        at = batch
        if known.record(at) is None and known.has_records():
            recorded = known.recorded()
            end = next((number for number in recorded if number >= batch), batch)
            # Those before it have no record any more.
            found = known.of_days(batch, end) if end > batch else {}
            for number in range(batch, end):
                pieces = found.get(number, [])
                yield number, sum(map(self._count, pieces)) if needed else 0
            at = end
        for number in itertools.count(at):
            record = known.record(number)
            if record is not None:
                yield number, record.rows
                continue
            plain = known.without_day(number)
            if plain is None:
                return
            yield number, sum(map(self._count, plain)) if needed else 0

    def _count(self, piece: Piece) -> int:
        if piece.rows is not None:
            return piece.rows
        try:
            with self._table().fs.open(piece.path, "rb") as file:
                return int(pq.read_metadata(file).num_rows)
        except FileNotFoundError:
            return self._count(self._found_again([piece])[0])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The rows of these batches."""
        return self._parts(self._pieces(self._checked(start), self._checked(end)))
