"""Publish the rows of a DataFrame: `writeStream.format("mqtt")` and `write.format("mqtt")`.

Each part of a batch is published by the executor that has it, over a connection of its own, in
the order of its rows. A part is done once the broker has acknowledged all of its rows at QoS 1
and 2; only then may Spark commit the batch. So no row is lost by a crash, and a batch that is
done again is published again.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from flatmq import Client, MQTTError

from . import durable, notices, refusals
from .options import OptionError, SinkSettings

COLUMNS = {
    "topic": ("string",),
    "payload": ("string", "binary"),
    "qos": ("tinyint", "smallint", "int", "bigint"),
    "retain": ("boolean",),
}
"""The columns of the sink, and the types that each may have."""

_RING = 1 << 20  # bytes of messages in flight; more where a message is larger
_LARGEST = 1 << 28  # bytes of a ring
_AROUND = 16  # bytes of a packet beside its topic name and payload, at most
_INFLIGHT = 255
_STEP_MS = 100  # a turn of the loop waits this long, at most
_LEAVE_MS = 5_000  # for the broker to read DISCONNECT and close
_KEPT = 1_000  # bad rows of a part that are kept; the others are only counted
_LONGEST = 1 << 16  # bytes of their payload that are kept
_SHOWN = 3  # reasons in a line of the report


class PublishError(RuntimeError):
    """A part of a batch could not be published; the text says why."""


class BadRow(NamedTuple):
    """A row that cannot be published."""

    topic: str | None
    payload: bytes | None
    reason: str


@dataclass
class Done(WriterCommitMessage):
    """The outcome for the rows of a part."""

    rows: int = 0
    bad: int = 0
    """Those that were not published."""
    kept: list[BadRow] = field(default_factory=list)
    """The first of these."""

    def refuse(self, row: BadRow) -> None:
        """Count a row that is not published."""
        self.bad += 1
        if len(self.kept) < _KEPT:
            payload = row.payload
            self.kept.append(row._replace(payload=payload and payload[:_LONGEST]))


class _Writing:
    """The part of driver and executors that a table and a stream share.

    It is pickled and sent to the executors, with the password.
    """

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        self._settings = settings
        self._at = _columns(schema, settings)
        for remark in settings.remarks:
            say(remark)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Done:
        """Publish the rows of a part. Return when the broker has acknowledged them."""
        publisher = _Publisher(self._settings)
        try:
            for batch in iterator:
                for topic, payload, qos, retain in self._rows(batch):
                    publisher.publish(topic, payload, qos, retain)
                # Before Spark computes the next ones, which may take longer than a keep alive.
                publisher.drain()
        finally:
            publisher.close()
        done = publisher.done
        if done.bad and self._settings.on_bad_row == "fail":
            raise PublishError(
                f"{done.bad:,} of {done.rows:,} rows of a part cannot be published: "
                f"{_reasons(done.kept)}; the others were published. With the option onBadRow = "
                "skip the query goes on"
            )
        return done

    def _rows(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
        settings = self._settings
        absent = {"topic": settings.topic, "qos": None, "retain": None}
        columns = [
            batch.column(self._at[name]).to_pylist()
            if name in self._at
            else [absent[name]] * batch.num_rows
            for name in COLUMNS
        ]
        return zip(*columns, strict=True)

    def _report(self, messages: Iterable[WriterCommitMessage | None], batch: int | None) -> None:
        """Say which rows of a batch were not published, and keep them where that is asked for."""
        found = [message for message in messages if isinstance(message, Done)]
        bad = sum(done.bad for done in found)
        if not bad:
            return
        rows = sum(done.rows for done in found)
        kept = [row for done in found for row in done.kept]
        name = "" if batch is None else f"batch {batch}: "
        where = ""
        if self._settings.bad_rows is not None:
            where = f"; see {_keep(self._settings.bad_rows, kept, batch)}"
        say(f"{name}{bad:,} of {rows:,} rows were not published: {_reasons(kept)}{where}")


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report the rows that were not published: the batch is done."""
        self._report(messages, batchId)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """The sink of `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report the rows that were not published: the rows are written."""
        self._report(messages, None)


class _Publisher:
    """A publisher of rows, in order, over one connection made with the first of them."""

    def __init__(self, settings: SinkSettings) -> None:
        self.done = Done()
        self._settings = settings
        self._client: Client | None = None
        self._ring = 0
        self._id = _client_id(settings)

    def publish(
        self, topic: str | None, payload: str | bytes | None, qos: int | None, retain: bool | None
    ) -> None:
        """Publish a row, as soon as there is room for it."""
        settings = self._settings
        self.done.rows += 1
        raw = payload.encode() if isinstance(payload, str) else payload
        if topic is None or raw is None:
            reason = "topic is null"
            if topic is not None:
                reason = "payload is null: an empty message has an empty payload"
            self.done.refuse(BadRow(topic, raw, reason))
            return
        client = self._for(len(topic.encode()) + len(raw))
        qos = settings.qos if qos is None else qos
        retain = settings.retain if retain is None else retain

        def taken() -> bool:
            try:
                return client.publish(topic, raw, qos, retain) is not None
            except ValueError as error:
                self.done.refuse(BadRow(topic, raw, str(error)))
                return True

        self._until(client, taken)

    def drain(self) -> None:
        """Return when everything is acknowledged, and what has QoS 0 is written."""
        client = self._client
        if client is not None:
            self._until(client, lambda: not client.pending)

    def close(self) -> None:
        """Disconnect. What is pending is dropped."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect(_LEAVE_MS if not client.pending else 0)

    def _until(self, client: Client, done: Callable[[], bool]) -> None:
        """Poll until that is so. Raises PublishError if nothing is acknowledged for too long."""
        settings = self._settings
        since, pending = time.monotonic(), client.pending
        while not done():
            where = f"{settings.host}:{settings.port}"
            client.poll(_STEP_MS)
            if client.pending < pending:
                since = time.monotonic()
            pending = client.pending
            if not client.connected and _hopeless(client.error):
                raise PublishError(f"{where} refuses the client: {client.error}")
            if settings.patience and time.monotonic() - since > settings.patience:
                why = client.error or "no acknowledgement"
                raise PublishError(
                    f"{where} has acknowledged nothing for {settings.patience} s, with "
                    f"{pending} messages waiting: {why}"
                )

    def _for(self, size: int) -> Client:
        """Return the client, with room for a message of this size.

        The size is that of the topic name and the payload, in bytes.
        """
        if self._client is not None and size + _AROUND <= self._ring:
            return self._client
        self.drain()
        self.close()
        self._ring = min(max(_RING, 2 * (size + _AROUND)), _LARGEST)
        self._client = self._connecting()
        return self._client

    def _connecting(self) -> Client:
        settings = self._settings
        trust = settings.trust
        assert settings.host is not None
        link = trust.link(settings.host, settings.port) if trust else None
        client = Client(
            self._id, settings.host, settings.port, user=settings.username,
            password=settings.password, keepalive=settings.keep_alive,
            version=settings.mqtt_version, timeout=settings.connection_timeout,
            tx_size=self._ring, inflight=_INFLIGHT, link=link, retry_ms=100, retry_max_ms=5_000,
            on_dropped=self._dropped, quiet=True,
        )  # fmt: skip
        client.start()
        return client

    def _dropped(self, _packet_id: int, topic: bytes, reason: str) -> None:
        """Count a message that the broker does not take."""
        self.done.refuse(BadRow(topic.decode(), None, f"{topic.decode()}: {reason}"))


def _columns(schema: StructType, settings: SinkSettings) -> dict[str, int]:
    """Return where each column is. Raises OptionError for one that the sink does not have."""
    at = {}
    for n, column in enumerate(schema):
        name, kind = column.name.lower(), column.dataType.simpleString()
        if name not in COLUMNS:
            raise OptionError(f"column {column.name}: the sink has {', '.join(COLUMNS)}")
        if name in at:
            raise OptionError(f"column {column.name}: it is there twice")
        if kind.partition("(")[0].replace("varchar", "string") not in COLUMNS[name]:
            raise OptionError(f"column {column.name}: {' or '.join(COLUMNS[name])}, not {kind}")
        at[name] = n
    if "payload" not in at:
        raise OptionError("column payload is missing")
    if "topic" in at and settings.topic is not None:
        raise OptionError("column topic and the option topic: give one of them")
    if "topic" not in at and settings.topic is None:
        raise OptionError("column topic is missing, and so is the option topic")
    return at


def _client_id(settings: SinkSettings) -> str:
    if not settings.client_id:
        return f"flatmq-{uuid.uuid4().hex[:16]}"
    task = TaskContext.get()
    part, attempt = (task.partitionId(), task.attemptNumber()) if task else (0, 0)
    return f"{settings.client_id}-{part}" + (f"-{attempt}" if attempt else "")


def _hopeless(error: MQTTError | None) -> bool:
    """Return whether trying again is useless: refused, or the broker's TLS cannot be verified."""
    return refusals.final(error) or (error is not None and error.kind == "tls" and not error.code)


def _reasons(rows: Iterable[BadRow]) -> str:
    counted = Counter(row.reason for row in rows)
    texts = [f"{reason} ({n:,} times)" if n > 1 else reason for reason, n in counted.items()]
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more:,} other reasons" if more > 0 else "")


def _keep(folder: Path, rows: Iterable[BadRow], batch: int | None) -> Path:
    """Write rows to a file of their own, and return it. It is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}.jsonl"
    lines = []
    for row in rows:
        line: dict[str, Any] = {"batch": batch, "topic": row.topic, "reason": row.reason}
        if row.payload is not None:
            try:
                line["payload"] = row.payload.decode()
            except UnicodeDecodeError:
                line["payload_base64"] = base64.b64encode(row.payload).decode()
        lines.append(json.dumps(line) + "\n")
    draft = folder / f".{name}"
    durable.write(draft, "".join(lines).encode())
    return draft.rename(folder / name)


def say(text: str) -> None:
    """Print a line for people, who see it on the driver's stderr."""
    notices.say(f"mqtt: {text}")
