"""Every message is in the table raw once, whatever happens to the service; and its metrics."""

import contextlib
import errno
import io
import os
import random
import resource
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.request import urlopen

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client.parser import text_string_to_metric_families

import sizes
from flatmq import Client
from flatmq_tools import broker, ports, senml
from flatmq_tools.pipeline import durable, landing, log, metrics
from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.landing import Landing, LandingError
from flatmq_tools.pipeline.metrics import MetricsError, RunNumbers, address, served
from flatmq_tools.pipeline.processes import Command
from observer import Observer
from pipeline import mqtt
from pipeline.mqtt import PATIENCE, publish, until
from pipeline.runs import Panic, typed
from pipeline.survive import PREPARED, fill, points, prepared

STEP = 1 if sizes.whole() else 7  # lines from a kill to the next one


def landed(out: Path) -> pa.Table:
    """The table raw, in the order of the offsets."""
    if not DeltaTable.is_deltatable(f"{out}/raw"):
        return log.SCHEMA.empty_table()
    found = DeltaTable(f"{out}/raw").to_pyarrow_table(columns=log.SCHEMA.names)
    return found.cast(log.SCHEMA).sort_by("offset")


def test_sigkill_at_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((log, "_sync"), (durable, "path"), (os, "fsync")):
        monkeypatch.setattr(module, name, lambda _: None)  # SIGKILL is no power cut
    count = 0
    for status, _ in points("landed", tmp_path, STEP):
        folder = tmp_path / str(count)
        out = tmp_path / f"{count}.out"
        # What is seen before it starts again is whole segments, each once.
        assert landed(out)["offset"].to_pylist() in [list(range(n)) for n in (0, 3, 7, 10)]
        with log.Writer(folder) as writer:
            writer.rotate()
            Landing(writer, str(out)).land()
            assert (writer.first_offset, writer.size) == (PREPARED, 0)
        assert landed(out)["offset"].to_pylist() == list(range(PREPARED))
        count += 1
        assert status in (0, -signal.SIGKILL)
    assert count > 100 // STEP, "there is a point for every line"


def test_several_ingests_land_in_one_table(tmp_path: Path) -> None:
    """They may create it at once; if it was created twice, a query would refuse the second one."""
    for n in range(10):
        out, begin = tmp_path / str(n), threading.Barrier(4)
        with contextlib.ExitStack() as stack:
            logs = [stack.enter_context(log.Writer(out / f"log-{m}")) for m in range(4)]
            for each in logs:
                fill(each, 5)
                each.rotate()
            works = [Landing(each, str(out)) for each in logs]

            def land(work: Landing, begin: threading.Barrier = begin) -> int:
                begin.wait()
                return work.land()

            with ThreadPoolExecutor(4) as pool:
                assert [*pool.map(land, works)] == [5] * 4
            assert Landing(logs[0], str(out)).land() == 0
        assert landed(out).num_rows == 20
        commits = [file.read_text() for file in (out / "raw" / "_delta_log").glob("*.json")]
        assert "".join(commits).count('{"metaData":') == 1


def test_a_damaged_file_of_the_log_holds_up_no_other(tmp_path: Path) -> None:
    said: list[str] = []
    out = tmp_path / "out"
    with log.Writer(tmp_path / "log") as writer:
        for count in (3, 4):
            fill(writer, count)
        writer.rotate()
        fill(writer, 3)
        writer.rotate()
        damaged = writer.closed()[0][0].path
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        before = damaged.read_bytes()
        work = Landing(writer, str(out))
        work.say = said.append
        assert work.land() == 6
        assert writer.first_offset == 10
    assert landed(out)["offset"].to_pylist() == [0, 1, 2, 7, 8, 9]
    kept = damaged.with_suffix(".damaged")
    assert kept.read_bytes() == before
    assert said == [
        f"{damaged}: damaged, or ends, before message 3: up to 6 none landed; see {kept}"
    ]
    with log.Writer(tmp_path / "log") as writer:
        fill(writer, 1)
        writer.rotate()
        assert Landing(writer, str(out)).land() == 1


def test_landing_goes_on_whatever_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of error is said, what cannot be read is named, and what comes lands, too."""

    class Unreadable(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def opened(path: Path, *args: Any, **more: Any) -> Any:
        if path.suffix == log.SUFFIX and wrong == "disk":
            return Unreadable(io.FileIO(path))
        return open(path, *args, **more)

    wrong: object = ValueError("odd")
    said: list[str] = []
    monkeypatch.setattr(landing, "_TROUBLE_S", 0.1)
    monkeypatch.setattr(Path, "open", opened)
    with log.Writer(tmp_path / "log") as writer:
        fill(writer, 5)
        first = writer.folder / f"{0:020}.log"
        work = Landing(writer, str(tmp_path / "out"))

        def land() -> int:
            if isinstance(wrong, BaseException):
                raise wrong
            return Landing.land(work)

        monkeypatch.setattr(work, "land", land)
        nobody = Ingest(writer, ("127.0.0.1", ports.free_port()), ["t"])
        service = landing.Service(nobody, work, every_s=0.1, say=said.append)
        service.background()
        try:
            for wrong, reason in (  # noqa: B007
                (ValueError("odd"), "odd"), (Panic("rust"), "rust"),
                ("disk", f"[Errno 5] Input/output error: '{first}'"),
            ):  # fmt: skip
                until(lambda: f"nothing lands in {work.target}, and waits: {reason}" in said)  # noqa: B023
            fill(writer, 3)
            wrong = ""
            until(lambda: "going on" in str(said))
        finally:
            service.close()
    assert landed(tmp_path / "out")["offset"].to_pylist() == list(range(8))


def test_tables_of_an_earlier_edition_are_left_alone(tmp_path: Path) -> None:
    prepared(tmp_path / "log")
    old = tmp_path / "out" / "abc-00000000000000000000.parquet"
    old.parent.mkdir()
    old.write_bytes(b"landed")
    with log.Writer(tmp_path / "log") as writer:
        with pytest.raises(LandingError, match="of an earlier edition of flatmq"):
            Landing(writer, str(tmp_path / "out"))
        assert writer.first_offset == 0
    assert [*old.parent.iterdir()] == [old]


class Service(Command):
    """`flatmq pipeline ingest` in a process of its own."""

    def __init__(self, server: broker.Broker, folder: Path, *options: str) -> None:
        self.out = folder / "out"
        self.log = folder / "log"
        super().__init__(
            folder / "ingest.txt", "ingest", server.address, self.out, "--log", self.log,
            "--every", "0.2", *options,
        )  # fmt: skip

    def received(self) -> int:
        """Return how many messages the service has received, in all its lives."""
        return log.bounds(self.log)[1]


def test_sigkill_while_messages_come(tmp_path: Path) -> None:
    """In one place each, none missing. In a shared subscription, of a session that expires."""
    chance = random.Random(1)
    server = mqtt.broker()
    publisher = Client(b"publisher", server.host, server.port, tx_size=1 << 17, inflight=100)
    publisher.connect()
    sent = 0

    def publish() -> None:
        nonlocal sent
        for _ in range(40):
            if publisher.publish(b"dev/%d" % (sent % 7), b"%d" % sent, 1) is None:
                break
            sent += 1
        publisher.poll(1)

    service = Service(
        server, tmp_path, "--filter", "$share/g/dev/#", "--client-id", "killed",
        "--mqtt-version", "5", "--session-expiry", "3600",
    )  # fmt: skip
    # From the first SUBSCRIBE on the broker keeps what is for it.
    service.until((service.log / "subscribed.json").exists, PATIENCE)
    for _ in range(4 if sizes.whole() else 2):
        before = service.received()
        service.until(lambda: publish() or service.received() > before, PATIENCE)  # noqa: B023
        for _ in range(chance.randrange(60)):
            publish()
        service.stop()
        publish()
        service.start()
    service.until(lambda: publisher.poll(1) is None or not publisher.pending, PATIENCE)

    def numbers() -> list[int]:
        return [int(payload) for payload in landed(service.out)["payload"].to_pylist()]

    service.until(lambda: len(set(numbers())) == sent, PATIENCE)
    service.end(PATIENCE)
    publisher.disconnect()
    table = landed(service.out)
    assert table["offset"].to_pylist() == list(range(table.num_rows)), service.words()
    # The broker sends again what was not acknowledged: the number in the payload shows it.
    found = [int(payload) for payload in table["payload"].to_pylist()]
    assert sorted(set(found)) == list(range(sent))
    server.stop()


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    """As a board does, and to Prometheus. The broker may come later."""
    port, served_at = ports.free_port(), ports.free_port()
    service = Service(
        broker.Broker("127.0.0.1", port), tmp_path, "--filter", "dev/a/#", "--limit", "7",
        "--metrics", "dev/ingest-1", "--metrics-every", "1", "--metrics-port", str(served_at),
    )  # fmt: skip
    service.until(lambda: "no connection" in service.words(), PATIENCE)
    status, telemetry = "dev/ingest-1/status", "dev/ingest-1/telemetry"
    with (
        mqtt.broker(port=port) as server,
        Observer(server.host, port, "dev/ingest-1/#") as others,
    ):

        def packs() -> list[dict[str, object]]:
            every = [m.payload for m in others.messages if m.topic == telemetry]
            return [{r.name: r.value for r in senml.resolve(bytes(payload))} for payload in every]

        service.until((service.log / "subscribed.json").exists, PATIENCE)
        assert scraped(served_at)["flatmq_ingest_messages_received_total"] == 0
        publish(server, [("dev/a/telemetry", b"x" * 100)] * 25)
        landed = "flatmq_ingest_messages_landed_total"
        service.until(lambda: scraped(served_at)[landed] == 25, PATIENCE)
        found = scraped(served_at)
        assert 1 <= found["flatmq_ingest_commits_total"] <= 25
        for name, value in (
            ("messages_received_total", 25), ("log_bytes", 0), ("log_limit_bytes", 7 << 20),
            ("connections_total", 1), ("connected", 1), ("paused", 0),
        ):  # fmt: skip
            assert found[f"flatmq_ingest_{name}"] == value, name
        with socket.socket() as outside:  # loopback alone
            assert outside.connect_ex(("127.0.0.2", served_at)) != 0
        service.until(lambda: packs() and packs()[-1]["ingest-1/ingest/received"] == 25, PATIENCE)
        assert packs()[-1]["ingest-1/ingest/connects"] == 1
        seqs = [pack["ingest-1/seq"] for pack in packs()]
        assert seqs == [seqs[0] + n for n in range(len(seqs))]
        service.end(PATIENCE)
        assert f"receiving from {server.address} into {service.out}" in service.words()
        service.start()
        # It disconnected, so the broker did not publish its will.
        said = [b"online", b"offline", b"online"]
        service.until(
            lambda: [m.payload for m in others.messages if m.topic == status] == said, PATIENCE
        )
        service.stop()


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


def test_an_address_of_metrics() -> None:
    for text, host in (("9100", "127.0.0.1"), ("0.0.0.0:9100", "0.0.0.0"), ("[::]:9100", "::")):
        assert address(text) == (host, 9100)
    for text in ("0", "65536", "there:9100", "x"):
        with pytest.raises(MetricsError, match=f"ADDRESS:PORT, .*: {text}"):
            address(text)


def test_a_port_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = taken.getsockname()
        said = pytest.raises(MetricsError, match=f"{where[1]}: Address already in use")
        with said, served(where, lambda: ()):
            pass


def test_metrics_of_an_ingest_with_a_long_name_are_complete() -> None:
    ingest, many = mock.Mock(), 10**12
    ingest.client.messages = ingest.client.stats.connects = ingest.log.size = many
    ingest.log.full = False
    landed = mock.Mock(messages=many, commits=many)
    landing.Metrics(ingest, landed, f"dev/{'a' * 250}", 1).tick()
    _, payload, _ = ingest.client.publish.call_args.args
    names = {record.name.partition("/ingest/")[2] for record in senml.resolve(bytes(payload))}
    assert names >= {name for name, _ in landing.Metrics.NAMES}


def test_metrics_wait_for_a_file_descriptor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Meanwhile the processor is not busy with them, and that is said once."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)

    monkeypatch.setattr(metrics, "sleep", wait, raising=False)
    where = ("127.0.0.1", ports.free_port())
    with served(where, lambda: ()), socket.socket() as asking:
        asking.settimeout(PATIENCE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))
        try:
            asking.connect(where)
            asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asking.recv(12) == b"HTTP/1.0 200"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert waits == [1.0] * 3
    assert capsys.readouterr().err == "no metrics are served for now: Too many open files\n"


def test_who_asks_for_no_metrics_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that has lost its power would keep a thread and a file descriptor without end."""
    monkeypatch.setattr(metrics, "_IDLE", 0.1, raising=False)
    where = ("127.0.0.1", ports.free_port())
    with served(where, lambda: ()), socket.create_connection(where, timeout=20) as silent:
        assert silent.recv(1) == b""
    assert capsys.readouterr().err == ""


def test_a_store_that_does_not_answer_takes_no_metric_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = RunNumbers()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("ALLOW_HTTP", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
            monkeypatch.setenv(f"AWS_{name}", "true")
        where = ("s3://bucket/devices",)
        asked = threading.Thread(target=numbers.devices, args=where, daemon=True)
        asked.start()
        asked.join(10.0)  # Prometheus waits no longer
        assert not asked.is_alive()


def test_a_table_that_is_broken_takes_no_metric_away(tmp_path: Path) -> None:
    numbers = RunNumbers()
    write_deltalake(tmp_path, pa.table({"silent": [True, None, False]}))
    for _ in range(2):
        numbers.devices(str(tmp_path))
        found = [m.samples[0].value for m in numbers.of_run({}, False, 0) if "devices" in m.name]
        assert found == [3, 1]
        (tmp_path / "_delta_log" / f"{0:020}.json").write_text("torn")
    numbers.devices(str(tmp_path / "none"))
