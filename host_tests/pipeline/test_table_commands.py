"""`flatmq pipeline export` and `forget`, and examples that read tables."""

import datetime
import json
import math
import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import peer
from conftest import ran
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.forget import Rows, remove_from_log
from flatmq_tools.pipeline.in_use import INGEST, InUseError, lock
from flatmq_tools.pipeline.mapping.births import Births
from flatmq_tools.pipeline.open_windows import Store as Windows
from flatmq_tools.pipeline.open_windows import step
from flatmq_tools.pipeline.run import Plan
from packets import build
from pipeline.messages import Message, count, land, pack, read, reading
from pipeline.mqtt import broker, publish, until
from pipeline.runs import said, started
from pipeline.test_windows import table as values

DOCS = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A table that grows, with two days, and one that is written again."""
    land(tmp_path / "out", [reading("a", 1, n, n * 40_000.0) for n in range(3)])
    rows = {"device": ["a", "b"], "silent": [False, True]}
    write_deltalake(tmp_path / "out" / "devices", pa.table(rows))
    return tmp_path / "out"


def test_plain_parquet(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "plain[red]"
    status, text = said("export", out, target)
    assert status == 0 and f"{target}/raw: 3 rows " in text
    rows = ds.dataset(target / "raw", format="parquet", partitioning="hive").to_table()
    assert sorted(rows["payload"].to_pylist()) == sorted(r["payload"] for r in read(out / "raw"))
    assert {path.name for path in (target / "raw").iterdir()} == {
        "day=2026-03-01", "day=2026-03-02",
    }  # fmt: skip
    assert ds.dataset(target / "devices", format="parquet").count_rows() == 2
    # What is there is not mixed with it.
    status, text = said("export", out, target, "--table", "devices")
    assert status == 1 and "exists: name another TARGET" in text
    status, text = said("export", out, target, "--table", "windows")
    assert status == 1 and "has none of the tables windows" in text
    assert "/proc/none: No such file" in said("export", out, "/proc/none")[1]
    commands = (
        ["export", out, target / "2"], ["forget", "a", out],
        ["report", target, "--from-raw", "--tables", out],
    )  # fmt: skip
    [file] = (out / "raw").glob("day=2026-03-02/*")
    for reason in ("magic bytes not found", "not found: No such file"):
        file.write_bytes(bytes(99))
        if "No such" in reason:
            file.unlink()
        for words in commands:
            status, text = said(*words)
            assert status == 1 and re.search(f"Error: .*{file.name}.*{reason}", text), text
            shutil.rmtree(target / "2", ignore_errors=True)
    (out / "raw" / "_delta_log" / f"{0:020}.json").write_text("torn")
    for words in commands:
        status, text = said(*words)
        assert status == 1 and f"Error: {out}/raw is damaged: " in text


def test_readers_that_skip_files_find_every_row(tmp_path: Path) -> None:
    """With texts of any length, values without an order, and columns without a value."""
    now = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
    columns = {
        "topic": ["a", "é", "t" * 40, "t" * 5000, "", None],
        "flag": [True, False, None, None, True, False],
        "value": [1.5, math.inf, math.nan, -math.inf, 1e308, None],
        "number": [1, -1, 1 << 62, None, 0, 7],
        "at": [now + datetime.timedelta(microseconds=n) for n in range(6)],
        "nothing": pa.nulls(6, pa.string()),
    }
    rows = pa.table(columns)
    for name, commits in (("one", [rows]), ("each", [rows.slice(n, 1) for n in range(6)])):
        table = Delta(tmp_path / name)
        for number, part in enumerate(commits):
            table.add([part], rows.schema, "test", number)
        read = DeltaTable(tmp_path / name).to_pyarrow_dataset()
        for column in ("topic", "flag", "value", "number", "at"):
            for n, value in enumerate(rows[column].to_pylist()):
                if value is None or (column == "value" and not math.isfinite(value)):
                    continue
                found = read.to_table(filter=ds.field(column) == value)
                assert rows.slice(n, 1)["at"][0] in found["at"], (name, column, value)


@pytest.mark.parametrize("library", ["duckdb", "polars", "pandas"])
def test_an_example_reads_a_table(library: str, out: Path) -> None:
    pytest.importorskip(library)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if re.search(rf"\b{library}\b", block)]
    done = ran([sys.executable, "-c", code], cwd=out.parent)
    assert done.returncode == 0, done.stderr
    assert "b" in done.stdout.split()


GONE = "lamp-4711"
KEPT = ("oven", "lamp-47")
MINUTE = 60_000_000


def _messages(boot: int) -> list[tuple[str, bytes]]:
    found = []
    for device in (*KEPT, GONE):
        for seq in (1, 2, 2, 5):
            found.append((f"dev/{device}/telemetry", pack(device, boot, seq)))
        found += [(f"dev/{device}/status", b"online"), (f"dev/{device}/telemetry", b"no pack")]
    return found


def _others(folder: Path) -> list[str]:
    """The rows of the other devices, in an order of their own."""
    return sorted(
        str(row)
        for row in read(folder)
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


def test_nothing_is_left_and_the_run_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    tables = ("raw", "measurements", "dead_letters", "health", "gaps", "devices")
    with broker() as there:
        first = _messages(1)
        with started(spark, Plan(tmp_path), there) as running:
            publish(there, first)
            until(lambda: running.look() or count(tmp_path / "measurements") == 9)
            running.finish()
        before = {name: _others(tmp_path / name) for name in tables}
        assert len(_with_name(tmp_path)) > 5, "the search finds it"

        status, text = said("forget", GONE, tmp_path)
        assert status == 0, text
        assert "│ raw │ 6 │" in text and "│ measurements │ 3 │" in text
        assert _with_name(tmp_path) == []
        assert {name: _others(tmp_path / name) for name in tables} == before
        for name in tables:
            assert count(tmp_path / name) == len(before[name]), name
        # A second one, with no run in between.
        assert said("forget", KEPT[1], tmp_path)[0] == 0
        before = {name: _others(tmp_path / name) for name in tables}
        assert said("forget", GONE, tmp_path) == (1, f"{GONE} is nowhere in {tmp_path}")

        second = _messages(2)
        with started(spark, Plan(tmp_path), there) as running:
            publish(there, second)
            until(lambda: running.look() or count(tmp_path / "measurements") == 3 + 9)
            running.finish()
    assert count(tmp_path / "raw") == len(first) - 12 + len(second)
    rows = read(tmp_path / "measurements")
    measured = [(row["device"], row["boot"], row["seq"]) for row in rows]
    expected = [("oven", 1, seq) for seq in (1, 2, 5)]
    expected += [(device, 2, seq) for device in (*KEPT, GONE) for seq in (1, 2, 5)]
    assert sorted(measured) == sorted(expected)
    boots = {row["device"]: row["boots"] for row in read(tmp_path / "devices")}
    assert boots == {"oven": 2, "lamp-47": 1, GONE: 1}


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


def _landed(out: Path, *devices: str) -> None:
    """Make a table raw of a message of each of these."""
    land(out, [Message(f"dev/{device}/x", b"1") for device in devices])


def test_a_log_of_an_ingest_and_other_topics(tmp_path: Path) -> None:
    out = tmp_path / "out"
    topics = [
        ("dev/a/x", b"1"), ("gateway/1", b"of a"), ("zigbee/lamp", b"2"), ("other", b"a"),
        ("zigbee/a", b""),
    ]  # fmt: skip
    land(out, [Message(topic, payload) for topic, payload in topics])
    with log.Writer(tmp_path / "log") as writer:
        writer.append(peer.publish(b"dev/a/x", b"1") + peer.publish(b"t", b"2"), 2, MINUTE)
    status, text = said("forget", "a", out, "--log", tmp_path / "log")
    assert status == 0 and "still have a in their topic or payload" in text
    assert "4 messages in raw" in text
    assert "gateway/1, other, zigbee/a, zigbee/lamp: name those" in text
    assert pa.Table.from_batches(log.read(tmp_path / "log", 0, 2))["topic"].to_pylist() == ["t"]
    assert said("forget", "lamp", out, "--topic", "zigbee/lamp")[0] == 0
    assert sorted(row["topic"] for row in read(out / "raw")) == ["gateway/1", "other", "zigbee/a"]
    assert len(list((out / "raw").rglob("part-*.parquet"))) == 1, "no old file is left"
    there = DeltaTable(str(out / "raw")).to_pyarrow_dataset()
    assert there.count_rows(filter=ds.field("topic") == "other") == 1, "other tools find rows"


def test_windows_under_way_keep_the_values_of_others(tmp_path: Path) -> None:
    with Windows(tmp_path / "windows.db") as store:
        before = store.load()
        for batch, rows in enumerate(([("a", 1), ("b", 2), ("c", 3)], [("d", 4), ("c", 5)])):
            done = step(before, values([(device, 0, 0, value) for device, value in rows]))
            store.save("query", batch, before, done)
            before = done.state
        assert store.forget("b") == 1
        assert store.forget("b") == 0
        state = store.load()
        # It is another device if it comes again, and the numbers of others stay.
        store.save("query", 2, state, step(state, values([("b", 0, 0, 6)])))
        state = store.load()
    names = list(state.devices)
    assert names == ["a", 1, "c", "d", "b"]
    assert [(names[d], v) for d, _, _, v in state.open.tolist()] == [
        ("a", 1.0), ("c", 3.0), ("d", 4.0), ("c", 5.0), ("b", 6.0),
    ]  # fmt: skip


def test_it_is_refused_while_a_run_or_an_ingest_has_the_folder(tmp_path: Path) -> None:
    _landed(tmp_path, "a")
    with lock(tmp_path):
        status, text = said("forget", "a", tmp_path)
    assert status == 1 and "in use by a `flatmq pipeline run` or `forget`, process " in text
    with lock(tmp_path, INGEST, shared=True), lock(tmp_path, INGEST, shared=True):
        status, text = said("forget", "a", tmp_path)
    assert status == 1 and "in use by a `flatmq pipeline forget` or `ingest`, process " in text
    assert count(tmp_path / "raw") == 1
    with (
        lock(tmp_path, INGEST), pytest.raises(InUseError, match="`flatmq pipeline forget`"),
        lock(tmp_path, INGEST, shared=True),
    ):  # fmt: skip
        pass
    assert said("forget", "a", tmp_path)[0] == 0


def test_what_cannot_be_done_is_said_before_anything_is_removed(tmp_path: Path) -> None:
    _landed(tmp_path, "a", "b")
    (tmp_path / "measurements" / "batch=0").mkdir(parents=True)
    assert "of an earlier edition of flatmq" in said("forget", "a", tmp_path)[1]
    (tmp_path / "measurements" / "batch=0").rmdir()
    copy = tmp_path / "log" / "1.damaged"
    copy.parent.mkdir(exist_ok=True)
    copy.touch()
    assert f"{copy} may have messages of the device" in said("forget", "a", tmp_path)[1]
    copy.unlink()
    # A job has read the first commit alone, and would lack the other one.
    place = {"table": str(DeltaTable(str(tmp_path / "raw")).metadata().id), "version": 1}
    checkpoint = tmp_path / "checkpoints" / "measurements"
    for name, text in (("commits", ""), ("offsets", {**place, "file": 0, "group": 0,
                                                     "whole": False})):  # fmt: skip
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "0").write_text(json.dumps(text))
    _landed(tmp_path, "c")
    (tmp_path / "empty").mkdir()
    for reason, words in (
        (f"which reads them, and end it; or, if you no longer run that job, remove {checkpoint}",
         ("a", tmp_path)),
        ("must be a local folder, not the URL s3://b/o", ("a", "s3://b/o")),
        ("no such folder", ("a", tmp_path / "none")),
        ("must be a topic filter, not a/#/b", ("x", tmp_path, "--topic", "a/#/b")),
        ("it has no table", ("x", tmp_path / "empty")),
    ):  # fmt: skip
        assert reason in said("forget", *words)[1]
    assert count(tmp_path / "raw") == 3


@pytest.mark.parametrize("name", ["a%20b", "[a]", "a\\b"])
def test_a_folder_that_deltalake_cannot_open_is_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    out.mkdir()
    for words in (("run", out), ("forget", "a", out), ("export", out, tmp_path / "to")):
        status, text = said(*words)
        assert status == 1 and "the path of a table must not contain" in text
    assert not [*out.iterdir()]


def test_certificates_of_a_device_go(tmp_path: Path) -> None:
    at = [1, 2]
    (tmp_path / "births.json").write_text(
        f'[["spBv1.0/g/n", "d", {at}, []], ["spBv1.0/g/n", "e", {at}, []]]'
    )
    assert Births(tmp_path / "births.json").forget("d") == 1
    assert Births(tmp_path / "births.json").forget("d") == 0
    assert '"e"' in (tmp_path / "births.json").read_text()
