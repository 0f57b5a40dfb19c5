"""The Prometheus metrics of `ingest` and `run`, scraped and parsed as Prometheus does."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from prometheus_client.parser import text_string_to_metric_families

from flatmq_tools import ports
from flatmq_tools.pipeline.metrics import MetricsError, RunNumbers, address, served
from pipeline.mqtt import PATIENCE, broker, publish
from pipeline.test_landing import Service
from pipeline.typed_here import typed


def scraped(port: int) -> dict[str, float]:
    """Each sample by its name and the values of its labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        " ".join([sample.name, *(v for _, v in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("topic", ["", "a/#", "a/+", "a/", "a/b c", "long" * 150], ids=len)
def test_a_wrong_topic_of_metrics_is_named(topic: str, tmp_path: Path) -> None:
    done = typed(["ingest", "127.0.0.1:1", tmp_path, "--log", tmp_path, "--metrics", topic])
    assert done.exit_code == 2
    assert "Invalid value for '--metrics': must be " in done.output


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("9100", ("127.0.0.1", 9100)),
        ("0.0.0.0:9100", ("0.0.0.0", 9100)),
        ("[::]:9100", ("::", 9100)),
        ("0", None),
        ("65536", None),
        ("there:9100", None),
        ("x", None),
    ],
)
def test_an_address(text: str, where: tuple[str, int] | None) -> None:
    if where is None:
        with pytest.raises(MetricsError, match=f"ADDRESS:PORT, .*: {text}"):
            address(text)
    else:
        assert address(text) == where


def test_a_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = taken.getsockname()
        said = pytest.raises(MetricsError, match=f"{where[1]}: Address already in use")
        with said, served(where, lambda: ()):
            pass


def test_a_table_that_is_broken_takes_no_metric_away(tmp_path: Path) -> None:
    numbers = RunNumbers()
    write_deltalake(tmp_path, pa.table({"silent": [True, None, False]}))
    for _ in range(2):
        numbers.devices(str(tmp_path))
        found = [m.samples[0].value for m in numbers.of_run({}, False, 0) if "devices" in m.name]
        assert found == [3, 1]
        (tmp_path / "_delta_log" / f"{0:020}.json").write_text("torn")
    numbers.devices(str(tmp_path / "none"))


def test_an_ingest(tmp_path: Path) -> None:
    port = ports.free_port()
    options = ["--filter", "dev/#", "--limit", "7", "--metrics-port", str(port)]
    with broker() as there:
        service = Service(there, tmp_path, *options)
        service.until((service.log / "subscribed.json").exists, PATIENCE)
        assert scraped(port)["flatmq_ingest_messages_received_total"] == 0
        publish(there, [("dev/a/telemetry", b"x" * 100)] * 25)
        landed = "flatmq_ingest_messages_landed_total"
        service.until(lambda: scraped(port)[landed] == 25, PATIENCE)
        found = scraped(port)
        assert found["flatmq_ingest_messages_received_total"] == 25
        assert 1 <= found["flatmq_ingest_commits_total"] <= 25
        assert found["flatmq_ingest_log_bytes"] == 0
        assert found["flatmq_ingest_log_limit_bytes"] == 7 << 20
        assert found["flatmq_ingest_connections_total"] == 1
        assert (found["flatmq_ingest_connected"], found["flatmq_ingest_paused"]) == (1, 0)
        with socket.socket() as outside:  # loopback alone
            assert outside.connect_ex(("127.0.0.2", port)) != 0
        service.end(PATIENCE)
