"""`flatmq pipeline forget`: nothing is left of a device, and nothing of the others changes."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import peer
import sizes
from flatmq_tools.pipeline import forget_days, log
from flatmq_tools.pipeline.cli import pipeline
from flatmq_tools.pipeline.forget_log import remove as remove_from_log
from flatmq_tools.pipeline.forget_rows import Rows
from flatmq_tools.pipeline.in_use import InUse, InUseError
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.layout import Table, files
from flatmq_tools.pipeline.mapping.births import Births
from flatmq_tools.pipeline.open_windows import Store as Windows
from flatmq_tools.pipeline.open_windows import step
from packets import build
from pipeline import days, survive
from pipeline.messages import pack
from pipeline.mqtt import broker, publish, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flatmq_tools.pipeline.run import Run

GONE = "lamp-4711"
KEPT = ("oven", "lamp-47")
MINUTE = 60_000_000
STEP = 1 if sizes.whole() else 11  # lines from a kill to the next one


def _forget(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(pipeline, ["forget", *map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


def _messages(boot: int) -> list[tuple[str, bytes]]:
    found = []
    for device in (*KEPT, GONE):
        for seq in (1, 2, 2, 5):
            found.append((f"dev/{device}/telemetry", pack(device, boot, seq)))
        found += [(f"dev/{device}/status", b"online"), (f"dev/{device}/telemetry", b"no pack")]
    return found


def _rows(folder: Path) -> list[dict[str, Any]]:
    return ds.dataset(folder, format="parquet").to_table().to_pylist()


def _others(folder: Path) -> list[str]:
    """The rows of the other devices, in an order of their own."""
    return sorted(
        str(row)
        for row in _rows(folder)
        if GONE not in (row.get("device"), *str(row.get("topic")).split("/"))
    )


def _with_name(folder: Path) -> list[str]:
    """The files in which the name is, tables decoded."""
    name = GONE.encode()
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += repr(pq.ParquetFile(path).read().to_pylist()).encode()
        if name in data or name in str(path.relative_to(folder)).encode():
            found.append(str(path.relative_to(folder)))
    return found


def _run(spark: SparkSession, out: Path, address: str) -> Run:
    from flatmq_tools.pipeline.run import Plan, Run

    source = {"brokerUrl": address, "topic": "dev/#"}
    running = Run(spark, Plan(out, source, delta=True, trigger=0.3))
    until(lambda: (out / "log" / "subscribed.json").exists() or running.look())
    return running


def test_nothing_is_left_and_the_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    tables = ("raw", "measurements", "dead_letters", "health", "gaps", "devices")
    with broker() as there:
        running = _run(spark, tmp_path, there.address)
        first = _messages(1)
        publish(there, first)
        until(lambda: running.look() or running.rows >= len(first))
        running.finish()
        running.stop()
        before = {name: _others(tmp_path / name) for name in tables}
        assert len(_with_name(tmp_path)) > 5, "the search finds it"

        status, text = _forget(GONE, tmp_path)
        assert status == 0, text
        assert "│ raw │ 6 │" in text and "│ measurements │ 3 │" in text
        assert _with_name(tmp_path) == []
        assert {name: _others(tmp_path / name) for name in tables} == before
        for name in tables:
            assert len(_rows(tmp_path / name)) == len(before[name])
            table: pa.Table = DeltaTable(str(tmp_path / "delta" / name)).to_pyarrow_table()
            assert table.num_rows == len(before[name]), name
        assert _forget(GONE, tmp_path) == (1, f"{GONE} is nowhere in {tmp_path}".replace("\n", ""))

        running = _run(spark, tmp_path, there.address)
        second = _messages(2)
        publish(there, second)
        until(lambda: running.look() or running.rows >= len(second))
        running.finish()
        running.stop()
    assert len(_rows(tmp_path / "raw")) == len(first) - 6 + len(second)
    rows = _rows(tmp_path / "measurements")
    measured = [(row["device"], row["boot"], row["seq"]) for row in rows]
    expected = [(device, boot, seq) for device in KEPT for boot in (1, 2) for seq in (1, 2, 5)]
    expected += [(GONE, 2, seq) for seq in (1, 2, 5)]
    assert sorted(measured) == sorted(expected)
    boots = {row["device"]: row["boots"] for row in _rows(tmp_path / "devices")}
    assert boots == {"oven": 2, "lamp-47": 2, GONE: 1}


def test_a_kill_at_any_line_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # SIGKILL is no power cut
    kept = [n for n in range(days.PREPARED) if n % 3 != 1]
    rows = Rows("device-1")
    count = 0
    for status, printed in survive.points("forgotten", tmp_path, STEP):
        folder = tmp_path / str(count)
        seen = days.numbers(folder)
        assert [n for n in seen if n % 3 != 1] == kept, "before it is started again"
        forget_days.remove(folder, rows)
        assert status == -signal.SIGKILL or printed == [days.PREPARED - len(kept)]
        assert days.numbers(folder) == kept
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]
        table = Table(str(folder))
        for batch in range(6):
            known = table.record(batch)
            assert known is not None
            assert known.rows == len([n for n in kept if n // 3 == batch])
            pieces = table.of_days(batch, batch + 1)[batch]
            assert known.rows == sum(
                pq.read_metadata(piece.path).num_rows if piece.rows is None else piece.rows
                for piece in pieces
            )
        shutil.rmtree(folder)
        count += 1
    assert count > 30 // STEP, "a point for every line"


def test_a_log_keeps_its_offsets(tmp_path: Path) -> None:
    with log.Writer(tmp_path) as writer:
        for n in range(3):
            body = peer.publish(b"dev/a/x", b"%d" % n, n, 7) + peer.publish(b"dev/b/x", b"y" * 200)
            # Not valid, and of no device or of this one.
            body += peer.packet(0x30, b"\0\0y") + peer.packet(0x30, peer.text(b"dev/a/\xff"))
            writer.append(body, 4, MINUTE + n)
            writer.append(build.publish(b"dev/a/x", b"5", 1, 2, []), 1, MINUTE, 5)
            writer.rotate()
        with pytest.raises(log.LogError, match="in use by process"):
            remove_from_log(tmp_path, Rows("a"))
    before = pa.Table.from_batches(log.read(tmp_path, 0, 15))
    assert remove_from_log(tmp_path, Rows("a")) == 9
    with log.Writer(tmp_path) as writer:
        assert writer.append(peer.publish(b"dev/c/x", b"z"), 1, MINUTE) == 15
    after = pa.Table.from_batches(log.read(tmp_path, 0, 16), log.SCHEMA)
    assert after["offset"].to_pylist() == [1, 2, 6, 7, 11, 12, 15]
    assert after.slice(0, 6) == before.take([1, 2, 6, 7, 11, 12])
    assert pa.Table.from_batches(log.read(tmp_path, 5, 7), log.SCHEMA)["offset"].to_pylist() == [6]
    assert b"dev/a" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert remove_from_log(tmp_path, Rows("a")) == 0
    assert remove_from_log(tmp_path, Rows("b", ["#"])) == 4, "but for the empty names"


def test_landed_files_keep_their_names_and_other_messages(tmp_path: Path) -> None:
    with log.Writer(tmp_path / "log") as writer:
        for device in (b"a", b"b"):
            body = peer.publish(b"dev/%s/x" % device, b"1") + peer.publish(b"zigbee/lamp", b"2")
            writer.append(body, 2, MINUTE)
            writer.rotate()
        Landing(writer, str(tmp_path / "landed")).land()
    before = {path.name: pq.read_table(path) for path in (tmp_path / "landed").iterdir()}
    days.prepared_with_devices(tmp_path / "out" / "measurements")
    status, _ = _forget(
        "a", tmp_path / "out", "--log", tmp_path / "log", "--landed", tmp_path / "landed"
    )
    assert status == 0
    after = {path.name: pq.read_table(path) for path in (tmp_path / "landed").iterdir()}
    first, second = sorted(before)
    assert after == {first: before[first].slice(1), second: before[second]}
    more = ("--topic", "zigbee/lamp", "--landed", tmp_path / "landed")
    assert _forget("lamp", tmp_path / "out", *more)[0] == 0
    left = [pq.read_table(path)["topic"].to_pylist() for path in (tmp_path / "landed").iterdir()]
    assert sorted(left) == [[], ["dev/b/x"]]


def test_messages_on_other_topics_that_name_it_are_reported(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "day=2026-01-01" / "batch=0"
    raw.mkdir(parents=True)
    topics = ["dev/a-1/x", "gateway/1", "gateway/1", "other"]
    payloads = [b"1", b"of a-1", b"of b", b"a-1"]
    pq.write_table(pa.table({"topic": topics, "payload": payloads}), raw / "part-0.parquet")
    status, text = _forget("a-1", tmp_path)
    assert status == 0 and "2 messages in raw still have a-1 in their payload" in text
    assert "gateway/1, other: name those" in text


def test_windows_under_way_keep_the_values_of_others(tmp_path: Path) -> None:
    def table(rows: list[tuple[str, float]]) -> pa.Table:
        at = pa.array([MINUTE] * len(rows), pa.timestamp("us", "UTC"))
        return pa.table(
            {
                "device": [device for device, _ in rows], "quantity": ["t"] * len(rows),
                "unit": ["Cel"] * len(rows), "time": at, "received": at,
                "value": [value for _, value in rows],
            }
        )  # fmt: skip

    store = Windows(tmp_path / "windows")
    done = step(store.load(-1, MINUTE, MINUTE), table([("a", 1.0), ("b", 2.0), ("c", 3.0)]))
    store.save(0, done)
    store.save(1, step(done.state, table([("d", 4.0), ("c", 5.0)])))
    assert store.forget("b") == 1
    assert store.forget("b") == 0
    state = store.load(1, MINUTE, MINUTE)
    names = list(state.devices)
    assert names == ["a", "c", "d"]
    assert [(names[d], v) for d, v in zip(state.device, state.value, strict=True)] == [
        ("a", 1.0), ("c", 3.0), ("d", 4.0), ("c", 5.0),
    ]  # fmt: skip


def test_it_is_refused_while_a_run_has_the_folder(tmp_path: Path) -> None:
    days.prepared_with_devices(tmp_path / "measurements")
    with InUse(tmp_path), InUse(tmp_path):
        status, text = _forget("device-1", tmp_path)
    assert status == 1 and "in use by a `flatmq pipeline run`" in text
    with InUse(tmp_path, alone=True), pytest.raises(InUseError, match="`flatmq pipeline forget`"):
        InUse(tmp_path)
    assert _forget("device-1", tmp_path)[0] == 0


def test_what_cannot_be_done_is_said_before_anything_is_removed(tmp_path: Path) -> None:
    days.prepared_with_devices(tmp_path / "measurements")
    (tmp_path / "iceberg").mkdir()
    assert "has Iceberg tables" in _forget("device-1", tmp_path)[1]
    (tmp_path / "iceberg").rmdir()
    (tmp_path / "measurements" / ".moving=6").mkdir()
    assert "start `flatmq pipeline run` once" in _forget("device-1", tmp_path)[1]
    assert "must be a local folder, not the URL s3://b/o" in _forget("device-1", "s3://b/o")[1]
    assert "no such folder" in _forget("device-1", tmp_path / "none")[1]
    assert "must be a topic filter, not a/#/b" in _forget("x", tmp_path, "--topic", "a/#/b")[1]
    (tmp_path / "empty").mkdir()
    assert "it has no table" in _forget("x", tmp_path / "empty")[1]
    count = sum(pq.read_metadata(file).num_rows for file in files(tmp_path / "measurements"))
    assert count == days.PREPARED


def test_certificates_of_a_device_go(tmp_path: Path) -> None:
    at = [1, 2]
    (tmp_path / "births.json").write_text(
        f'[["spBv1.0/g/n", "d", {at}, []], ["spBv1.0/g/n", "e", {at}, []]]'
    )
    assert Births(tmp_path / "births.json").forget("d") == 1
    assert Births(tmp_path / "births.json").forget("d") == 0
    assert '"e"' in (tmp_path / "births.json").read_text()
