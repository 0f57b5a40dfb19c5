"""Prometheus metrics of `ingest` and `run`.

A name begins with `flatmq_ingest_` or `flatmq_run_`, and says its unit; that of a counter ends in
`_total`. Counters count from the start of the process.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric

from .metrics import counter, counters, gauge

if TYPE_CHECKING:
    from .landing import Service

_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 300.0)  # s of a batch


def of_ingest(service: Service) -> Iterator[Metric]:
    """The numbers of an ingest."""
    ingest, landing = service.ingest, service.landing
    client, log = ingest.client, ingest.log
    yield counter(
        "flatmq_ingest_messages_received", "Messages appended to the log.", client.messages
    )
    yield counter("flatmq_ingest_messages_landed", "Messages in the table raw.", landing.messages)
    yield counter("flatmq_ingest_commits", "Commits to the table raw.", landing.commits)
    yield gauge("flatmq_ingest_log_bytes", "Size of the log.", log.size)
    yield gauge(
        "flatmq_ingest_log_limit_bytes", "Size from which nothing is received.", log.limit_bytes
    )
    yield counter(
        "flatmq_ingest_connections", "Connections that the broker accepted.", client.stats.connects
    )
    yield gauge("flatmq_ingest_connected", "1 while connected to the broker.", ingest.connected)
    yield gauge(
        "flatmq_ingest_paused",
        "1 while nothing is received: the log, or the disk of the log, is full.",
        service.paused,
    )


class RunNumbers:
    """The figures of a run, from what Spark reports of each batch."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        """Rows written, by table."""
        self._guard = threading.Lock()
        self._batches = Histogram(
            "flatmq_run_batch_seconds", "Duration of a batch, by query.", ["query"],
            registry=None, buckets=_BUCKETS,
        )  # fmt: skip
        self._devices = self._silent = 0

    def batch(self, progress: Mapping[str, Any]) -> None:
        """Add a batch that is done."""
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        self._batches.labels(str(progress["name"])).observe(seconds)

    def devices(self, table: str) -> None:
        """Take how many devices there are in the Delta table, and how many of them are silent."""
        if not DeltaTable.is_deltatable(table):
            return
        rows = DeltaTable(table).to_pyarrow_table(columns=["silent"])
        with self._guard:
            self._devices = rows.num_rows
            self._silent = sum(1 for silent in rows["silent"].to_pylist() if silent)

    def of_run(self, late: Mapping[str, int], paused: bool, failed: int) -> Iterator[Metric]:
        """The numbers of a run."""
        with self._guard:
            yield counters(
                "flatmq_run_rows_written", "Rows written, by table.", "table", dict(self.rows)
            )
            yield counter(
                "flatmq_run_dead_letters",
                "Messages that no table but raw and dead_letters has.",
                self.rows["dead_letters"],
            )
            yield counters(
                "flatmq_run_rows_late", "Rows too late for a table.", "table", dict(late)
            )
            yield gauge("flatmq_run_devices", "Devices in the table devices.", self._devices)
            yield gauge("flatmq_run_devices_silent", "Those that are silent.", self._silent)
            yield gauge("flatmq_run_paused", "1 while a disk is full.", paused)
            yield gauge("flatmq_run_jobs_failed", "Jobs that fail and are tried again.", failed)
        yield from self._batches.collect()
