"""The report from the state of a run is that from the table raw."""

import contextlib
import datetime
import json
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flatmq_tools.pipeline.report import from_raw, from_state, period
from flatmq_tools.pipeline.report.figures import Figures, ReportError
from flatmq_tools.pipeline.report.period import Period, PeriodError
from flatmq_tools.pipeline.state import groups
from flatmq_tools.pipeline.state.snapshots import Snapshots
from pipeline.messages import START, Message, at, land, reading
from pipeline.runs import said
from pipeline.test_once import Pipeline

NEAR = groups.WIDTH - 1
DAY = 86400.0
YEAR = datetime.timedelta(days=365)


def fleet(drawn: random.Random, days: float) -> list[Message]:
    """Return boards that lose, repeat and swap readings, restart and fall silent, and others."""
    sent: list[Message] = []
    for number in range(8):
        name, boot, seq, now = f"d{number}", 1, 1, drawn.uniform(0, 300)
        while now < days * DAY:
            fate = drawn.random()
            delay = drawn.lognormvariate(-1, 1)
            time = None if number == 3 else now - delay
            if fate > 0.05:
                sent.append(reading(name, boot, seq, now, time, temperature=2000 + seq))
            if 0.1 < fate < 0.15:
                sent.append(reading(name, boot, seq, now + 20, time, temperature=2000 + seq))
            seq += 1
            if fate > 0.98:
                boot, seq = boot + drawn.choice([1, 2]), 1
                sent.append(Message(f"dev/{name}/status", b"online", now + 1))
                now += drawn.choice([0, 9000.0])
            now += 600 * drawn.uniform(0.9, 1.1)
    for n in range(40):
        sent.append(Message("dev/plug/telemetry", b'[{"n":"power","v":7}]', n * days * DAY / 41))
        sent.append(Message("dev/d1/telemetry", b"torn", 30 + n * days * DAY / 41))
    sent.append(Message("dev/d2/telemetry", b"[7]", 12 * 3600.0))
    sent.append(Message("dev/gone/telemetry", b'[{"n":"power","v":8}]', 3 * 3600.0))
    sent.append(Message("dev/mute/status", b"offline", 3 * 3600.0))
    # Of a clock that was never set.
    sent.append(Message("dev/d4/telemetry", b'[{"bt":9e8,"n":"x","v":1}]', 4 * 3600.0))
    return sorted(sent, key=lambda message: message.at)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that a run makes of messages that come in four batches."""
    pipeline = Pipeline(spark, tmp_path_factory.mktemp("ran"))
    messages = fleet(random.Random(7), 2.5)
    size = -(-len(messages) // 4)
    for begin in range(0, len(messages), size):
        if begin:
            Snapshots(pipeline.state, str(pipeline.folder)).refresh()  # which closes boots
        pipeline.land(messages[begin : begin + size])
        pipeline.run()
    return pipeline.folder


def of_state(folder: Path, stretch: Period = period.Period()) -> Figures:  # noqa: B008
    found = from_state.of_state(folder, stretch)
    assert found is not None
    return found


def near(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return found == pytest.approx(wanted, rel=NEAR)


def same(found: Figures, wanted: Figures) -> None:
    """Numbers are equal, and delays within the width of a bin."""
    for name in ("since", "until", "messages", "step", "wide", "heard", "gaps",
                 "paused", "losses", "newest"):  # fmt: skip
        assert getattr(found, name) == getattr(wanted, name), name
    assert [d[:2] for d in found.dead] == [d[:2] for d in wanted.dead]
    assert [m[:2] for m in found.moments] == [m[:2] for m in wanted.moments]
    pairs = zip(found.moments, wanted.moments, strict=True)
    assert all(near(a, b) for one, other in pairs for a, b in zip(one[2:], other[2:], strict=True))
    assert all(near(*pair) for pair in zip(found.delays, wanted.delays, strict=True))
    devices = zip(found.devices, wanted.devices, strict=True)
    for device, other in devices:
        plain = {"p50": None, "p95": None, "p99": None}
        assert device._replace(**plain) == other._replace(**plain)
        for part in plain:
            assert near(getattr(device, part), getattr(other, part)), (device, other)


def of_raw(folder: Path, stretch: Period = period.Period()) -> Figures:  # noqa: B008
    with from_raw.figures(folder, period=stretch) as (found, _):
        return found


def test_raw_alone_says_the_same(tables: Path) -> None:
    """It is read in one batch, so hours and days do not depend on how messages are cut."""
    found = of_state(tables)
    assert sum(device.lost for device in found.devices) > 10
    assert sum(device.duplicates for device in found.devices) > 10
    assert [wrong[:2] for wrong in found.out_of_time] == [("d4", 1)]
    midnight = START.replace(hour=0) + datetime.timedelta(days=1)
    with from_raw.figures(tables) as (wanted, folder):
        same(found, wanted)
        for stretch in (Period(midnight, midnight + YEAR / 365), Period(midnight + YEAR / 500)):
            same(of_state(tables, stretch), of_state(folder, stretch))


def test_the_newest_gaps_of_a_device_are_shown(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = of_state(tables).gaps
    monkeypatch.setattr(from_state, "GAPS", 1000)
    every = of_state(tables).gaps
    assert len(every) > len(shown)
    for name in {gap.device for gap in every}:
        mine = [gap for gap in every if gap.device == name]
        assert [gap for gap in shown if gap.device == name] == mine[-20:]


def test_a_stretch_of_time_of_raw_alone(tables: Path) -> None:
    """From raw nothing is known of what was before: the readings around the begin differ."""
    noon = START.replace(hour=15) + datetime.timedelta(days=1)
    stretch = Period(noon, noon + datetime.timedelta(hours=9))
    found, wanted = of_state(tables, stretch), of_raw(tables, stretch)
    assert not found.remarks
    assert not wanted.remarks
    for name in ("since", "until", "messages", "step", "newest"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert [m[:2] for m in found.moments] == [m[:2] for m in wanted.moments]
    devices = {device.name: device for device in found.devices}
    assert devices.keys() == {device.name for device in wanted.devices}
    for other in wanted.devices:
        device = devices[other.name]
        assert abs(device.received - other.received) <= 1
        assert abs(device.duplicates - other.duplicates) <= 1
        assert device.unheard == other.unheard == 0
        assert device.heard == other.heard
        assert device.boots == other.boots
    assert sum(d.lost for d in found.devices) > 0
    total = sum(d.lost for d in wanted.devices)
    assert abs(sum(d.lost for d in found.devices) - total) <= len(devices)


def test_days_add_up(tables: Path) -> None:
    """Reports of single days add up to the report of all of them."""
    whole = of_state(tables)
    midnight = START.replace(hour=0)
    days = [
        of_state(tables, Period(midnight + n * YEAR / 365, midnight + (n + 1) * YEAR / 365))
        for n in range(3)
    ]
    assert sum(day.messages for day in days) == whole.messages
    for name in ("received", "lost", "duplicates", "reordered", "reboots"):
        total = sum(getattr(device, name) for day in days for device in day.devices)
        assert total == sum(getattr(device, name) for device in whole.devices), name
    wrong = [sum(one.readings for one in of.out_of_time) for of in (whole, *days)]
    assert sum(wrong[1:]) == wrong[0]
    assert sum(d.messages for day in days for d in day.dead) == sum(d.messages for d in whole.dead)


def test_what_waited_is_known(tables: Path, tmp_path: Path) -> None:
    """It is what had come by then, without what the jobs had read."""
    (tmp_path / "state").symlink_to(tables / "state")
    times = [message.at for message in fleet(random.Random(7), 2.5)]
    begins, rows = [times[-n] // 1 + 1 for n in (30, 20, 5)], [5, 30, 25]
    lines = [
        {"id": "q", "name": "measurements", "batchId": n, "timestamp": at(begin).isoformat(),
         "numInputRows": rows[n], "durationMs": {"triggerExecution": 400}}
        for n, begin in enumerate(begins)
    ]  # fmt: skip
    (tmp_path / "progress.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    came = [sum(time < begin for time in times) for begin in begins]
    taken = [len(times) - sum(rows[n + 1 :]) for n in range(3)]  # with that batch
    waited = [batch.spool for batch in of_state(tmp_path).batches]
    assert waited == [max(c - t, 0) for c, t in zip(came, taken, strict=True)] != [0, 0, 0]
    # Without the table gaps it says the same.
    assert of_state(tmp_path).gaps == of_state(tables).gaps


def test_periods() -> None:
    day = datetime.datetime(2026, 11, 1, tzinfo=period.UTC)
    assert period.when("2026-11-01") == day
    assert period.when("2026-11-01T12:30") == day.replace(hour=12, minute=30)
    assert period.when("2026-11-01T02:00+02:00") == day
    assert period.when("7d") == datetime.timedelta(days=7)
    newest = day + datetime.timedelta(days=30)
    assert Period(datetime.timedelta(days=30)).of(newest) == (day, None)
    for text in ("", "soon", "2026-13-01", "7", "-7d", "36526d"):
        with pytest.raises(PeriodError, match=r"a date such as 2026-11-01|at most 36525d"):
            period.when(text)
    with pytest.raises(PeriodError, match="--since must be before --until: 2026-11-01T00:00:00"):
        Period(day, day).of(None)


def test_the_command_needs_no_java(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatmq_tools.pipeline import session

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", refuse)
    begin = ["report", tmp_path, "--tables", tables]
    status, text = said(*begin, "--since", "1d")
    assert status == 0, text
    page = (tmp_path / "report.html").read_text()
    assert '"d7"' in page
    assert "chip/temp" in page  # of the table measurements
    for options, words in (
        (["--since", "yesterday"], "it must be a date such as 2026-11-01"),
        (["--since", "2026-03-05", "--until", "2026-03-04"], "--since must be before --until"),
        (["--until", "2020-01-01"], "there are no messages between --since and --until"),
    ):
        status, text = said(*begin, *options)
        assert status != 0 and words in text
    status, text = said(*begin, "--from-raw")
    assert status == 0, text


def test_only_the_days_of_a_stretch_are_read(tmp_path: Path) -> None:
    """Of the other days no file is read."""
    land(tmp_path, [reading("a", 1, n + 1, n * 3600.0) for n in range(40)])
    for day in ("2026-03-02", "2026-03-03"):
        [file] = (tmp_path / "raw" / f"day={day}").iterdir()
        file.unlink()
    stretch = Period(None, at(12 * 3600.0))
    assert of_raw(tmp_path, stretch).messages == 12
    with pytest.raises(ReportError, match="no messages between --since and --until"):
        of_raw(tmp_path, Period(at(90 * DAY)))


def test_of_two_states_the_one_with_the_newest_message_is_asked(
    tables: Path, tmp_path: Path
) -> None:
    """A run that has only the job health now leaves the other state as it was."""
    (tmp_path / "state").mkdir()
    for name, change in (
        ("measurements", "DELETE FROM steps"), ("health", "UPDATE place SET now = now + 1"),
    ):  # fmt: skip
        file = tmp_path / "state" / f"{name}.sqlite"
        shutil.copy(tables / "state" / "measurements.sqlite", file)
        with contextlib.closing(sqlite3.connect(file)) as db, db:
            db.execute(change)
    assert of_state(tmp_path).messages == of_state(tables).messages


def test_a_state_of_another_version_is_not_asked(tables: Path, tmp_path: Path) -> None:
    assert from_state.of_state(tmp_path, Period()) is None
    (tmp_path / "state").mkdir()
    file = tmp_path / "state" / "measurements.sqlite"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 2")
    assert from_state.of_state(tmp_path, Period()) is None
    assert file.exists()
