"""A Parquet table by days that takes each batch once."""

from __future__ import annotations

import datetime
import threading
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import durable, visible
from .hadoop import file_system, local
from .layout import DAY, MOVING, PREFIX, RECENT, RECORD, RECORDS, record_text
from .move_over import move_over
from .owner import claim
from .visible import SinkError

_DAY_US = 86_400_000_000


class ByDay:
    """A Parquet table in folders of days, and in each a folder per batch.

    They are `day=YYYY-MM-DD/batch=N`; see `layout`.

    folder  a path, or a URL that Hadoop knows
    column  the timestamp whose day, in UTC, it is

    A batch is written under a hidden name, its rows are counted by the driver, and its files are
    synced to the disk (on a local file system). It is committed by one rename, and then moved into
    its days, one after the other. A start finishes what a kill interrupted there. So each row is
    there once, though for a moment readers may see a batch in one of its days alone.
    """

    def __init__(self, folder: str | Path, column: str) -> None:
        self.folder = str(folder)
        self._column = column
        self._mine = ""
        self.moving = threading.Lock()
        """Held while the folders of days change: a merge takes it to exchange one."""
        self.rows = 0
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        """Return whether the batch is in the table. SinkError if that is of another query."""
        if self._mine != query:
            claim(self.folder, query, spark)
            self._finish(spark)
            self._mine = query
        return batch_id <= max(self._recorded(spark), default=-1)

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch. SinkError if its rows cannot be read back, or if it is there."""
        spark = rows.sparkSession
        hidden = f"{self.folder}/.batch={batch_id}-{uuid.uuid4().hex}"
        name = DAY.rstrip("=")
        # No zone of a session comes into it.
        day = F.date_from_unix_date(F.floor(F.unix_micros(self._column) / _DAY_US).cast("int"))
        counts = visible.write(rows.withColumn(name, day), hidden, self.folder, name)
        if not counts and not self._recorded(spark):
            # Readers find the columns of a table that has a file.
            today = f"{DAY}{datetime.datetime.now(datetime.timezone.utc).date()}"
            none = spark.createDataFrame([], rows.schema).coalesce(1)
            counts = {today: sum(visible.write(none, f"{hidden}/{today}", self.folder).values())}
        files, old = file_system(spark, hidden)
        _, record = file_system(spark, f"{hidden}/{RECORD}")
        stream = files.create(record)
        stream.write(record_text(counts).encode())
        stream.close()
        on_disk = local(files, old)
        if on_disk is not None:
            durable.tree(on_disk)
        _, new = file_system(spark, f"{self.folder}/{MOVING}{batch_id}")
        _, there = file_system(spark, self._record(batch_id))
        with self.moving:
            if files.exists(new) or files.exists(there) or not files.rename(old, new):
                raise SinkError(
                    f"{self.folder}: batch {batch_id} is there: does another query write here?"
                )
            if on_disk is not None:
                durable.entry(on_disk)
            self._move(spark, batch_id)
        self.rows += sum(counts.values())

    def _record(self, batch_id: int) -> str:
        return f"{self.folder}/{RECORDS}/{batch_id}.json"

    def _recorded(self, spark: SparkSession) -> list[int]:
        """The batches that have a record."""
        files, records = file_system(spark, f"{self.folder}/{RECORDS}/[0-9]*.json")
        names = (str(status.getPath().getName()) for status in files.globStatus(records) or ())
        return [int(name.removesuffix(".json")) for name in names]

    def _move(self, spark: SparkSession, batch_id: int) -> None:
        """Move a committed batch into its days, as far as it is not there yet, and record it."""
        files, moving = file_system(spark, f"{self.folder}/{MOVING}{batch_id}")
        on_disk = local(files, moving)
        for status in files.listStatus(moving):
            day = str(status.getPath().getName())
            if not day.startswith(DAY):
                continue
            _, parent = file_system(spark, f"{self.folder}/{day}")
            files.mkdirs(parent)
            _, target = file_system(spark, f"{self.folder}/{day}/{PREFIX}{batch_id}")
            if files.exists(target) or not files.rename(status.getPath(), target):
                raise SinkError(f"{target} is there: does another query write here?")
            if on_disk is not None:
                durable.path(on_disk.parent / day)
        _, records = file_system(spark, f"{self.folder}/{RECORDS}")
        files.mkdirs(records)
        _, draft = file_system(spark, f"{self.folder}/{MOVING}{batch_id}/{RECORD}")
        _, record = file_system(spark, self._record(batch_id))
        if files.exists(draft) and not files.rename(draft, record):
            raise SinkError(f"{record} cannot be made: does another query write here?")
        if on_disk is not None:
            durable.path(on_disk.parent / RECORDS)
            durable.path(on_disk.parent)
        files.delete(moving, True)
        files.delete(file_system(spark, self._record(batch_id - RECENT))[1], False)

    def _finish(self, spark: SparkSession) -> None:
        """Do what a kill left undone, and remove what it left unfinished."""
        with self.moving:
            files, moving = file_system(spark, f"{self.folder}/{MOVING}*")
            for status in files.globStatus(moving):
                batch_id = int(str(status.getPath().getName()).removeprefix(MOVING))
                # One of a table without days, which is being moved over.
                files.delete(file_system(spark, f"{self.folder}/{PREFIX}{batch_id}")[1], True)
                self._move(spark, batch_id)
            _, drafts = file_system(spark, f"{self.folder}/.batch=*")
            for left in files.globStatus(drafts):
                files.delete(left.getPath(), True)
            files, old = file_system(spark, f"{self.folder}/{PREFIX}*")
            if not files.globStatus(old):
                return
            folder = local(files, file_system(spark, self.folder)[1])
            if folder is None:
                raise SinkError(
                    f"{self.folder} is a table of an earlier version, which had no days: write to "
                    "another folder, or move this one to a local disk, start there once, and move "
                    "it back"
                )
            for batch_id in move_over(folder, self._column):
                self._move(spark, batch_id)
