"""Every message is in exactly one Parquet file, whatever happens to the service."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sizes
from flatmq import Client
from flatmq_tools import broker, ports, senml
from flatmq_tools.pipeline import landing, log
from flatmq_tools.pipeline.landing import Landing, LandingError
from observer import Observer
from pipeline.mqtt import UNLIMITED
from pipeline.survive import PREPARED, points, prepared

PATIENCE = 120


def files(folder: Path) -> list[Path]:
    """Return what a reader of the folder sees: nothing that begins with a dot."""
    return sorted(p for p in folder.glob("*") if p.name[0] not in "._") if folder.is_dir() else []


def landed(folder: Path) -> pa.Table:
    """All of it, in the order of the offsets."""
    tables = [pq.read_table(path) for path in files(folder)]
    assert all(table.schema.equals(log.SCHEMA) for table in tables)
    return pa.concat_tables([log.SCHEMA.empty_table(), *tables]).sort_by("offset")


def test_sigkill_at_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((log, "_sync"), (log, "sync_folder"), (landing, "sync_folder"),
                         (os, "fsync")):  # fmt: skip
        monkeypatch.setattr(module, name, lambda _: None)  # SIGKILL is no power cut
    count = 0
    for status, _ in points("landed", tmp_path):
        folder = tmp_path / str(count)
        out = tmp_path / f"{count}.out"
        # What is seen before it starts again is whole files, of different messages.
        offsets = landed(out)["offset"].to_pylist()
        assert len(set(offsets)) == len(offsets)
        with log.Writer(folder) as writer:
            writer.rotate()
            Landing(writer, str(out)).land()
            assert (writer.first_offset, writer.size) == (PREPARED, 0)
        assert landed(out)["offset"].to_pylist() == list(range(PREPARED))
        assert [p.name for p in out.iterdir() if p.name.startswith(".")] == []
        count += 1
        assert status in (0, -signal.SIGKILL)
    assert count > 30, "there is a point for every line"


def test_a_target_that_is_no_folder(tmp_path: Path) -> None:
    prepared(tmp_path)
    with log.Writer(tmp_path) as writer:
        writer.rotate()
        assert Landing(writer, "memory://bucket/tables").land() == PREPARED
        store = fsspec.filesystem("memory")
        names = sorted(store.ls("/bucket/tables", detail=False))
        assert [name.rpartition("/")[2] for name in names] == [
            f"{writer.id}-{first:020d}.parquet" for first in (0, 3, 7)
        ]
        tables = [pq.read_table(store.open(name)) for name in names]
        offsets = pa.concat_tables(tables)["offset"].to_pylist()
        assert offsets == list(range(PREPARED))
        with pytest.raises(LandingError, match="nothing can land in nowhere://x"):
            Landing(writer, "nowhere://x")


def test_a_target_that_is_away_for_a_while(tmp_path: Path) -> None:
    prepared(tmp_path / "log")
    out = tmp_path / "out"
    with log.Writer(tmp_path / "log") as writer:
        work = Landing(writer, str(out))
        writer.rotate()
        out.rmdir()
        out.write_text("in the way")
        with pytest.raises(OSError):
            work.land()
        assert writer.first_offset == 0
        out.unlink()
        out.mkdir()
        assert work.land() == PREPARED


# The command


class Service:
    """`flatmq pipeline ingest` in a process of its own."""

    def __init__(self, server: broker.Broker, folder: Path, *options: str) -> None:
        self.out = folder / "out"
        self.log = folder / "log"
        self._command = [
            sys.executable, "-m", "flatmq_tools.cli", "pipeline", "ingest", server.address,
            str(self.out), "--log", str(self.log), "--every", "0.2", *options,
        ]  # fmt: skip
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._env, stderr=subprocess.PIPE, text=True
        )

    def kill(self) -> None:
        self.process.kill()
        assert self.process.communicate() and self.process.returncode == -signal.SIGKILL

    def stop(self) -> str:
        """End it in good order; what it has said."""
        self.process.terminate()
        said = self.process.communicate(timeout=PATIENCE)[1]
        assert self.process.returncode == 0, said
        return str(said)

    def received(self) -> int:
        """Return how many messages the service has received, in all its lives."""
        return log.bounds(self.log)[1]

    def until(self, done: Callable[[], object], *turns: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end
            if self.process.poll() is not None:
                pytest.fail(str(self.process.communicate()[1]))
            for turn in turns:
                turn()


def test_sigkill_while_messages_come(tmp_path: Path) -> None:
    """Missing 0, each in one place of the log and of the files, and twice 0 by its number.

    In a shared subscription, of a session that expires.
    """
    chance = random.Random(1)
    server = broker.mosquitto(extra=UNLIMITED)
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
    service.until((service.log / "subscribed.json").exists)
    for _ in range(4 if sizes.whole() else 2):
        before = service.received()
        service.until(lambda: service.received() > before, publish)  # noqa: B023
        for _ in range(chance.randrange(60)):
            publish()
        service.kill()
        publish()
        service.start()
    service.until(lambda: not publisher.pending, publisher.poll)

    def numbers() -> list[int]:
        return [int(payload) for payload in landed(service.out)["payload"].to_pylist()]

    service.until(lambda: len(set(numbers())) == sent, lambda: time.sleep(0.1))
    said = service.stop()
    publisher.disconnect()
    table = landed(service.out)
    assert table["offset"].to_pylist() == list(range(table.num_rows)), said
    # The broker sends again what was not acknowledged: the number in the payload shows it.
    found = [int(payload) for payload in table["payload"].to_pylist()]
    assert sorted(set(found)) == list(range(sent))
    assert [p for p in service.out.iterdir() if p.name.startswith(".")] == []
    server.stop()


def test_what_it_tells_of_itself(tmp_path: Path) -> None:
    with (
        broker.mosquitto() as server,
        Observer(server.host, server.port, "dev/ingest-1/status") as others,
    ):
        service = Service(server, tmp_path, "--filter", "dev/#", "--metrics", "dev/ingest-1",
                          "--metrics-every", "1")  # fmt: skip

        def told() -> list[dict]:
            return landed(service.out).to_pylist()

        service.until(lambda: sum(m["topic"] == "dev/ingest-1/telemetry" for m in told()) >= 2)
        said = service.stop()
        assert f"receiving from {server.address} into {service.out}" in said
        status = [m["payload"] for m in told() if m["topic"] == "dev/ingest-1/status"]
        assert status[0] == b"online"
        packs = [senml.resolve(m["payload"]) for m in told() if m["topic"].endswith("telemetry")]
        values = [{r.name: r.value for r in pack} for pack in packs]
        assert values[1]["ingest-1/seq"] == 2
        assert values[1]["ingest-1/ingest/received"] >= 2
        assert values[1]["ingest-1/ingest/connects"] == 1
        service.start()
        service.until(lambda: [m["payload"] for m in told()].count(b"offline"))
        # It disconnected, so the broker did not publish its will.
        service.until(lambda: len(others.messages) >= 3)
        assert others.payloads("dev/ingest-1/status") == [b"online", b"offline", b"online"]
        service.kill()


def test_a_broker_that_is_not_there_yet(tmp_path: Path) -> None:
    port = ports.free_port()
    service = Service(broker.Broker("127.0.0.1", port), tmp_path, "--filter", "t")
    assert service.process.stderr
    while "no connection" not in service.process.stderr.readline():
        assert service.process.poll() is None
    with broker.mosquitto(port=port):
        service.until((service.log / "subscribed.json").exists)
        service.stop()
