"""Prometheus metrics of `ingest` and `run`, over HTTP.

A name begins with `flatmq_ingest_` or `flatmq_run_`, and says its unit; that of a counter ends in
`_total`. Counters count from the start of the process.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from prometheus_client import (
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .notices import say

if TYPE_CHECKING:
    from .landing import Service

LOOPBACK = "127.0.0.1"
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 300.0)  # s of a batch
_PATIENCE = 3.0  # s: Prometheus waits for ten
_IDLE = 60.0  # s in which a connection must send or accept something
_PAUSE = 1.0  # s before another connection is accepted, if one could not be


class MetricsError(ValueError):
    """The metrics cannot be served; the text says why."""


def address(text: str) -> tuple[str, int]:
    """Return the address and port of "PORT", "ADDRESS:PORT" or "[ADDRESS]:PORT".

    The default address is that of loopback. Raises MetricsError.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or LOOPBACK
    try:
        ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        number = 0
    if not 0 < number < 65536:
        raise MetricsError(f"must be PORT or ADDRESS:PORT, with a port of 1 to 65535: {text}")
    return host, number


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


@contextmanager
def served(
    where: tuple[str, int] | None, collect: Callable[[], Iterable[Metric]]
) -> Iterator[None]:
    """Serve what `collect` returns at each scrape, at http://ADDRESS:PORT/metrics.

    Nothing is served if `where` is None. Raises MetricsError if the port is in use.
    """
    if where is None:
        yield
        return
    disable_created_metrics()  # when a histogram was made says nothing
    registry = CollectorRegistry()
    registry.register(_Collected(collect))
    try:
        server, thread = start_http_server(where[1], where[0], registry)
    except OSError as error:
        raise MetricsError(f"--metrics-port {where[0]}:{where[1]}: {error.strerror}") from error
    server.RequestHandlerClass.timeout = _IDLE  # type: ignore[attr-defined]
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of the connection
    server.get_request = _patient(server.get_request)  # type: ignore[method-assign]
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _patient(accept: Callable[[], Any]) -> Callable[[], Any]:
    """Return `accept` with a pause after an error, which its server would repeat at once."""
    said = ""

    def accepted() -> Any:
        nonlocal said
        try:
            found = accept()
        except OSError as error:  # most likely there are too many open files
            if said != (said := str(error.strerror)):
                say(f"no metrics are served for now: {said}")
            sleep(_PAUSE)
            raise
        said = ""
        return found

    return accepted


def _families(
    prefix: str, numbers: Iterable[tuple[str, str, float | Mapping[str, float]]]
) -> Iterator[Metric]:
    """Yield metrics by name, text and value: counters by table, or if the name has _total."""
    for name, about, value in numbers:
        family: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily
        if name.endswith("_total"):
            family = CounterMetricFamily
        if not isinstance(value, Mapping):
            yield family(prefix + name, about, value=float(value))
            continue
        by_table = family(prefix + name, about, labels=["table"])
        for table, count in value.items():
            by_table.add_metric([table], count)
        yield by_table


def of_ingest(service: Service) -> Iterator[Metric]:
    """The numbers of an ingest."""
    ingest, landing = service.ingest, service.landing
    client, log = ingest.client, ingest.log
    return _families("flatmq_ingest_", [
        ("messages_received_total", "Messages appended to the log.", client.messages),
        ("messages_landed_total", "Messages in the table raw.", landing.messages),
        ("commits_total", "Commits to the table raw.", landing.commits),
        ("log_bytes", "Size of the log.", log.size),
        ("log_limit_bytes", "Size from which nothing is received.", log.limit_bytes),
        ("connections_total", "Connections that the broker accepted.", client.stats.connects),
        ("connected", "1 while connected to the broker.", ingest.connected),
        ("paused", "1 while nothing is received: the log, or its disk, is full.", service.paused),
    ])  # fmt: skip


class RunNumbers:
    """The figures of a run, from what Spark reports of each batch."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        """Rows written, by table."""
        self._batches = Histogram(
            "flatmq_run_batch_seconds", "Duration of a batch, by query.", ["query"],
            registry=None, buckets=_BUCKETS,
        )  # fmt: skip
        self._devices = 0, 0  # of them, the silent ones
        self._reading = Thread()  # which reads them: one at a time, as a store may not answer

    def batch(self, progress: Mapping[str, Any]) -> None:
        """Add a batch that is done."""
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        self._batches.labels(str(progress["name"])).observe(seconds)

    def devices(self, table: str) -> None:
        """Take how many devices there are in the Delta table, and how many of them are silent.

        If it cannot be read, or not within `_PATIENCE` s, those of before are kept: the other
        metrics do not depend on it.
        """
        reading = self._reading
        if not reading.is_alive():
            reading = self._reading = Thread(target=self._read, args=(table,), daemon=True)
            reading.start()
        reading.join(_PATIENCE)

    def _read(self, table: str) -> None:
        with contextlib.suppress(BaseException):  # a panic of deltalake, too
            rows = DeltaTable(table).to_pyarrow_table(columns=["silent"])
            self._devices = rows.num_rows, rows["silent"].to_pylist().count(True)

    def of_run(self, late: Mapping[str, int], paused: bool, failed: int) -> Iterator[Metric]:
        """The numbers of a run."""
        devices, silent = self._devices
        yield from _families("flatmq_run_", [
            ("rows_written_total", "Rows written, by table.", dict(self.rows)),
            ("dead_letters_total", "Messages that no table but raw and dead_letters has.",
             self.rows["dead_letters"]),
            ("rows_late_total", "Rows too late for a table.", dict(late)),
            ("devices", "Devices in the table devices.", devices),
            ("devices_silent", "Those that are silent.", silent),
            ("paused", "1 while a disk is full.", paused),
            ("jobs_failed", "Jobs that fail and are tried again.", failed),
        ])  # fmt: skip
        yield from self._batches.collect()
