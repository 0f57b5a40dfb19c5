"""Numbers of `ingest` and `run` for Prometheus, over HTTP."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LOOPBACK = "127.0.0.1"


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
        raise MetricsError(
            f"--metrics-port must be PORT or ADDRESS:PORT, with a port of 1 to 65535: {text}"
        )
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
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def counter(name: str, about: str, value: float) -> Metric:
    """A number that only grows. "_total" is added to its name."""
    return CounterMetricFamily(name, about, value=value)


def gauge(name: str, about: str, value: float | bool) -> Metric:
    """A number that goes up and down."""
    return GaugeMetricFamily(name, about, value=float(value))


def counters(name: str, about: str, label: str, values: dict[str, float]) -> Metric:
    """A counter for each value of a label."""
    family = CounterMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
