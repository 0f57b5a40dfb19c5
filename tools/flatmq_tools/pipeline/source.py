"""The source of `spark.readStream.format("mqtt")` and `spark.read`.

What `writeStream` and `write` do is in `publishing`.

A query's reader lives in one Python process beside the driver's JVM. A thread there receives into
the log (see `log`), and nothing is acknowledged to the broker before it is on the disk. Offsets
are those of the log, so that any batch can be read again, which Spark does after each crash.
`commit` trims the log.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from . import log
from .ingest import by_settings
from .options import OptionError, Settings, parse, parse_sink
from .publishing import BatchWriter, StreamWriter, say

LOCK_PATIENCE = 10.0  # s for the process before this one to let go of the log
_STEP = 0.05  # s between two looks at what was received
_ROWS = 20_000  # of a partition, at least, unless minPartitions says otherwise

SCHEMA: StructType = from_arrow_schema(log.SCHEMA)


class SourceError(RuntimeError):
    """The source cannot go on; the text says why, and what to do."""


class MqttSource(DataSource):
    """Messages of an MQTT broker, with the columns of `log.SCHEMA`.

    `options.Settings` lists the options. Errors of `options.parse` come out of `load()`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "mqtt"

    def schema(self) -> StructType:
        """The columns."""
        parse(self.options, streaming=False)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader for `spark.read`."""
        return BatchReader(parse(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for `spark.readStream`."""
        return StreamReader(parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for `df.write`. Raises OptionError, also for columns that it lacks."""
        if overwrite:
            raise OptionError("mode = 'overwrite': append, as a broker has nothing to replace")
        return BatchWriter(parse_sink(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what `df.writeStream` uses. Raises OptionError as for `writer`."""
        return StreamWriter(parse_sink(self.options), schema)


class Range(InputPartition):
    """A part of a batch: the messages of a log from offset `start` up to `end`."""

    def __init__(self, folder: Path, start: int, end: int) -> None:
        super().__init__(None)
        self.folder = folder
        self.start = start
        self.end = end


def ranges(folder: Path, start: int, end: int, least: int) -> list[InputPartition]:
    """Return the offsets from `start` up to `end` in parts of equal size.

    There are at least `least` parts, or if that is 0 as many as there are processors, if there
    is enough to do.
    """
    rows = end - start
    parts = max(1, min(rows, least or min(os.cpu_count() or 1, rows // _ROWS)))
    cuts = [start + rows * i // parts for i in range(parts + 1)]
    return [Range(folder, a, b) for a, b in itertools.pairwise(cuts)]


class _Reading:
    """The reading of a part by an executor.

    All of it is pickled and sent to the executor: no password.
    """

    def __init__(self, schema: StructType) -> None:
        unknown = [f.simpleString() for f in schema if f not in SCHEMA.fields]
        if unknown or not len(schema):
            raise OptionError(
                f"schema: {', '.join(unknown) or 'empty'}; there is {SCHEMA.simpleString()}, "
                "of which any may be left out"
            )
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a part, as Arrow batches. Has no side effects."""
        if not isinstance(partition, Range) or partition.start == partition.end:
            return
        folder = partition.folder
        if not folder.exists():
            raise SourceError(
                f"{folder} is not here: the log is on the machine of the driver. With executors "
                "on others, `flatmq pipeline ingest` lands files that Spark's own source reads"
            )
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for batch in log.read(folder, partition.start, partition.end):
            columns = [batch.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchReader(_Reading, DataSourceReader):
    """The reader of `spark.read`: what is in the log once the broker's messages were received.

    Without a broker: what is in the log, also while a query uses it.
    """

    def __init__(self, settings: Settings, schema: StructType) -> None:
        super().__init__(schema)
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """Receive until nothing has come for `quietMs`, and say what is there then."""
        settings = self._settings
        if settings.host is None:
            if not settings.local_storage.is_dir():
                raise SourceError(f"{settings.local_storage}: there is no log")
            first, after = log.bounds(settings.local_storage)
        else:
            receiver = Receiver(settings)
            try:
                receiver.wait_until_quiet()
                first, after = receiver.writer.first_offset, receiver.synced()
            finally:
                receiver.stop()
        return ranges(settings.local_storage, first, after, settings.min_partitions)


def _end(*_: Any) -> None:
    """End the process.

    Spark sends SIGTERM twice within milliseconds: the second one must not interrupt `stop`, or
    messages that are on the disk stay unacknowledged and come again.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


class StreamReader(_Reading, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """The reader of `spark.readStream`.

    It connects when it is first asked, and not when it is made: Spark makes one more, only to
    send it to the executors.
    """

    def __init__(
        self,
        settings: Settings,
        schema: StructType,
        ingest: Callable[[Settings, log.Writer], Any] | None = None,
    ) -> None:
        super().__init__(schema)
        self._settings = settings
        self._ingest = ingest
        self._receiver: Receiver | None = None
        self._target: int | None = None  # Trigger.AvailableNow goes no further

    def _receiving(self) -> Receiver:
        if self._receiver is None:
            # Spark ends the process of a stopped query with this, and calls no `stop`.
            with contextlib.suppress(ValueError):  # not the main thread
                signal.signal(signal.SIGTERM, _end)
            self._receiver = Receiver(self._settings, self._ingest)
        return self._receiver

    def _offset(self, offset: int) -> dict[str, Any]:
        return {"log": self._receiving().writer.id, "offset": offset}

    def _known(self, offset: dict[str, Any]) -> int:
        """Return the offset of a checkpoint. Raises SourceError if this log cannot go on there."""
        writer = self._receiving().writer
        at = int(offset["offset"])
        if offset.get("log") != writer.id or at > writer.synced:
            raise SourceError(
                f"the checkpoint goes on at message {at} of another log than the one in "
                f"{writer.folder}: name its folder in localStorage, or start with a new checkpoint"
            )
        if at < writer.first_offset:
            raise SourceError(
                f"the checkpoint goes on at message {at}, and the log in {writer.folder} begins "
                f"with {writer.first_offset}: it was trimmed for another checkpoint"
            )
        return at

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: with all that the log has."""
        return self._offset(self._receiving().writer.first_offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`, if it was given."""
        most = self._settings.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The offset after the last message that is on the disk, or a lower one by the limit."""
        end = self._receiving().synced()
        if self._target is not None:
            end = min(end, self._target)
        if start is not None:
            at = self._known(start)
            if isinstance(limit, ReadMaxRows):
                end = min(end, at + limit.max_rows)
            end = max(end, at)
        return self._offset(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The same without the limit, for the query's progress."""
        return self._offset(self._receiving().synced())

    def prepareForTriggerAvailableNow(self) -> None:
        """Receive what the broker has for this client; that is what is available now."""
        self._receiving().wait_until_quiet()
        self._target = self._receiving().synced()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The parts of a batch. After a crash it is the first that is called."""
        first, after = self._known(start), self._known(end)
        if first == after:
            return []
        return ranges(self._settings.local_storage, first, after, self._settings.min_partitions)

    def commit(self, end: dict[str, Any]) -> None:
        """Remove what lies before `end` from the log: Spark is done with it.

        After a crash Spark says again what it said before.

        Before a segment goes, everything on this machine is synced to the disk: Spark's checkpoint
        and most sinks write files and do not sync them, and after a power cut the log would be
        needed again. That is once for each segment, not for each batch.
        """
        writer = self._receiving().writer
        if end.get("log") != writer.id:
            return
        offset = int(end["offset"])
        if writer.full or any(after <= offset for _, after in writer.closed()):
            os.sync()
        writer.trim(offset)

    def stop(self) -> None:
        """End the receiving. Called at the end of the process too."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.stop()


class Receiver:
    """An ingest that receives from the broker into the log of these settings, in a thread."""

    def __init__(
        self, settings: Settings, ingest: Callable[[Settings, log.Writer], Any] | None = None
    ) -> None:
        for remark in settings.remarks:
            say(remark)
        self._settings = settings
        self.writer = _opened(settings)
        try:
            self._ingest = (ingest or partial(by_settings, say=say))(settings, self.writer)
            self._ingest.start()
            self._ingest.background()
        except BaseException:
            self.writer.close()
            raise

    def synced(self) -> int:
        """The offset after the last message that is on the disk. IngestError as of `check`."""
        self._ingest.check()
        return self.writer.synced

    def wait_until_quiet(self) -> None:
        """Return when connected, and nothing has come for `quietMs`.

        Raises SourceError when there is no connection within `connectionTimeout`.
        """
        end = time.monotonic() + self._settings.connection_timeout
        while not self._ingest.subscribed:
            self.synced()
            if time.monotonic() > end:
                host, port = self._settings.host, self._settings.port
                raise SourceError(f"no connection to {host}:{port}: {self._ingest.error}")
            time.sleep(_STEP)
        seen, since = self.synced(), time.monotonic()
        while time.monotonic() - since < self._settings.quiet_ms / 1000:
            time.sleep(_STEP)
            if self.synced() != seen:
                seen, since = self.synced(), time.monotonic()

    def stop(self) -> None:
        """Disconnect, and release the log."""
        self._ingest.stop()
        self.writer.close()


def _opened(settings: Settings) -> log.Writer:
    """The log, to be written. The process of the query before may have it for a moment yet."""
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            return log.Writer(settings.local_storage, settings.log_limit)
        except log.LogError as error:
            in_use = isinstance(error.__cause__, OSError)
            if not in_use or time.monotonic() > end:
                raise
        time.sleep(_STEP)
