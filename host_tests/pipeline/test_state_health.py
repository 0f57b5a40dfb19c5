"""The tables made of the state are those that `jobs.health` makes of all messages."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from flatmq_tools.pipeline.jobs import health as oracle
from flatmq_tools.pipeline.jobs import limits
from flatmq_tools.pipeline.state import forget, groups, snapshots
from flatmq_tools.pipeline.state.arrivals import Arrivals, State, Status
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.state.unnumbered import Unnumbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEAR = groups.WIDTH - 1
US = 1_000_000
START = 1_772_366_400 * US
DAY = 86_400.0


class Event(NamedTuple):
    """A pack, or a status if `seq` is None.

    With `seq` -1 it is a pack without numbers, which may be retained or sent again.
    """

    at: float
    device: str
    boot: int = 0
    seq: int | None = None
    delay: float | None = None
    status: str = ""


def fleet(drawn: random.Random, devices: int, days: float) -> list[Event]:
    """Devices that lose, repeat, swap and hold back packs, restart and fall silent."""
    events: list[Event] = []
    for number in range(devices):
        name = f"d{number}"
        now, boot = drawn.uniform(0, 100), drawn.choice([0, 1, 7, 40])
        every = drawn.choice([1.0, 10.0, 60.0]) * max(1.0, days * 20)
        timed = drawn.random() < 0.5
        kept: list[tuple[int, int]] = []
        while now < days * DAY:
            boot += drawn.choice([1, 1, 1, 2, 5, 5000])
            events.append(Event(now, name, status=drawn.choice(["online", "x" * 50, ""])))
            for seq in range(drawn.choice([1, 1, 3]), drawn.randrange(5, 60)):
                now += every * drawn.uniform(0.9, 1.1)
                delay = drawn.lognormvariate(5, 1) if timed else None
                fate = drawn.random()
                if fate < 0.1:
                    continue
                if fate < 0.12:  # on flash for days
                    events.append(Event(now + drawn.uniform(0, 4 * DAY), name, boot, seq))
                    continue
                if fate < 0.15:  # on flash, until a later boot perhaps
                    kept.append((boot, seq))
                    continue
                events.append(Event(now, name, boot, seq, delay))
                if fate < 0.3:
                    again = now + drawn.choice([0, every / 3, 5 * every, 50 * every])
                    events.append(Event(again, name, boot, seq, delay))
                if kept and fate > 0.9:
                    late = now + every / 2
                    events += [Event(late, name, of, held, None) for of, held in kept]
                    kept = []
            if drawn.random() < 0.5:
                now += every * drawn.choice([8, 30])
                events.append(Event(now, name, status=drawn.choice(["asleep", "offline"])))
    for number in range(devices // 4):
        name, end = f"z{number}", days * DAY * drawn.choice([0.5, 1.0])
        now, every = drawn.uniform(0, 100), drawn.choice([20.0, 60.0]) * max(1.0, days * 20)
        while now < end:
            mark = drawn.choice(["", "", "", "retain", "dup"])
            delay = drawn.choice([None, 250.0, 300.0])
            events.append(Event(now, name, 0, -1, delay, mark))
            now += drawn.choice([0.2, every])
    # Without numbers, but only at first; and one that is known by what was retained alone.
    events += [Event(1, "d0", 0, -1, None, ""), Event(2, "kept", 0, -1, None, "retain")]
    events.append(Event(days * DAY, "mute", status="online"))
    events.append(Event(days * DAY - 5, "single", 3, 4))
    return sorted(event for event in events if event.at <= days * DAY)


def micros(event: Event) -> int:
    return START + round(event.at * US)


def include(state: State, events: Sequence[Event], first: int, batch: int) -> None:
    packs = [(n, e) for n, e in enumerate(events) if e.seq is not None and e.seq >= 0]
    random.Random(batch).shuffle(packs)
    ints = pa.int64()
    table = pa.table(
        {
            "row": pa.array([n for n, _ in packs], ints),
            "device": pa.array([e.device for _, e in packs], pa.string()),
            "boot": pa.array([e.boot for _, e in packs], ints),
            "seq": pa.array([e.seq for _, e in packs], ints),
            "at": pa.array([micros(e) for _, e in packs], ints),
            "offset": pa.array([first + n for n, _ in packs], ints),
            "delay": pa.array(
                [None if e.delay is None else round(e.delay * 1000) for _, e in packs], ints
            ),
        }
    )
    others = [(n, e) for n, e in enumerate(events) if e.seq == -1]
    unnumbered = Unnumbered.of(
        pa.table(
            {
                "device": pa.array([e.device for _, e in others], pa.string()),
                "at": pa.array([micros(e) for _, e in others], ints),
                "offset": pa.array([first + n for n, _ in others], ints),
                "delay": pa.array(
                    [None if e.delay is None else round(e.delay * 1000) for _, e in others], ints
                ),
                "retain": pa.array([e.status == "retain" for _, e in others], pa.bool_()),
                "dup": pa.array([e.status == "dup" for _, e in others], pa.bool_()),
            }
        )
    )
    newest: dict[str, Status] = {}
    for n, e in enumerate(events):
        if e.seq is None:
            newest[e.device] = Status(e.device, e.status[:32] or None, micros(e), first + n)
    state.mark(Arrivals.of(table))  # as by a process that is killed before it writes
    marked = state.mark(Arrivals.of(table), list(newest.values()), micros(events[-1]), unnumbered)
    state.commit(marked, Place("query", batch, batch + 1, None))


def split(drawn: random.Random, events: list[Event], parts: int) -> list[list[Event]]:
    cuts = sorted(drawn.sample(range(1, len(events)), parts - 1))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def expected(spark: SparkSession, events: list[Event]) -> dict[str, pa.Table]:
    """The tables of `jobs.health`, of all messages at once."""
    moment = pa.timestamp("us", "UTC")
    messages = pa.table(
        {
            "topic": [f"dev/{e.device}/{'telemetry' if e.seq is not None else 'status'}"
                      for e in events],
            "payload": pa.array([e.status.encode() for e in events], pa.binary()),
            "timestamp": pa.array([micros(e) for e in events], pa.int64()).cast(moment),
            "qos": pa.array([1] * len(events), pa.int32()),
            "retain": [False] * len(events),
            "dup": [False] * len(events),
            "offset": pa.array(range(len(events)), pa.int64()),
        }
    )  # fmt: skip
    packs = [(n, e) for n, e in enumerate(events) if e.seq is not None]
    parsed = pa.table(
        {
            "device": [e.device for _, e in packs],
            "boot": pa.array([e.boot if e.seq != -1 else None for _, e in packs], pa.int64()),
            "seq": pa.array([e.seq if e.seq != -1 else None for _, e in packs], pa.int64()),
            "retain": [e.status == "retain" for _, e in packs],
            "dup": [e.status == "dup" for _, e in packs],
            "timestamp": pa.array([micros(e) for _, e in packs], pa.int64()).cast(moment),
            "offset": pa.array([n for n, _ in packs], pa.int64()),
            "time": pa.array(
                [micros(e) - round((e.delay or 0) * 1000) for _, e in packs], pa.int64()
            ).cast(moment),
            "told": [e.delay is not None for _, e in packs],
            "reason": pa.nulls(len(packs), pa.string()),
        }
    )
    frames = (spark.createDataFrame(table) for table in (messages, parsed))
    with oracle.Health(next(frames), packs=next(frames)) as made:
        return {
            "health": made.boots().toArrow(),
            "devices": made.devices().toArrow(),
            "gaps": made.gaps().toArrow(),
        }


def keyed(table: pa.Table, *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def same(found: dict[str, Any], wanted: dict[str, Any], usual: float | None) -> None:
    """Rows are equal, but for percentiles, and for silence that begins about now."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if name.startswith("delay_") or name == "usual_s":
            assert found[name] == (None if value is None else pytest.approx(value, rel=NEAR)), name
        elif name == "silent":
            near = usual and abs((wanted["silent_s"] or 0) / (limits.QUIET * usual) - 1) <= NEAR
            assert near or found[name] == value, (name, found, wanted)
        else:
            assert found[name] == value, (name, found, wanted)


def compare(folder: Path, wanted: dict[str, pa.Table], silences: bool) -> None:
    found = {name: ds.dataset(folder / name, format="parquet").to_table() for name in wanted}
    assert [t.schema.names for t in found.values()] == [t.schema.names for t in wanted.values()]
    devices = keyed(wanted["devices"], "device")
    usual = {key[0]: row["usual_s"] for key, row in devices.items() if row["boots"]}
    for name, keys in (("devices", ["device"]), ("health", ["device", "boot"])):
        mine, theirs = keyed(found[name], *keys), keyed(wanted[name], *keys)
        assert mine.keys() == theirs.keys()
        for key, row in theirs.items():
            same(mine[key], row, usual.get(key[0]))
    order = ("device", "boot", "since", "until", "missing")
    lost = [
        sorted(tuple(row[k] for k in order) for row in t["gaps"].to_pylist() if row["missing"])
        for t in (found, wanted)
    ]
    assert lost[0] == lost[1]
    if silences:
        known = sorted(u for u in usual.values() if u is not None)
        fleet = known[(len(known) + 1) // 2 - 1]

        def silent(table: pa.Table) -> set[tuple[Any, ...]]:
            rows = [row for row in table.to_pylist() if row["kind"] == "silent"]
            return {
                (row["device"], row["boot"], row["since"], row["until"])
                for row in rows
                if abs(
                    (row["until"] - row["since"]).total_seconds()
                    / (limits.QUIET * (usual[row["device"]] or fleet)) - 1
                ) > NEAR
            }  # fmt: skip

        assert silent(found["gaps"]) == silent(wanted["gaps"])


def test_a_day_in_any_batches_is_as_from_scratch(spark: SparkSession, tmp_path: Path) -> None:
    drawn = random.Random(5)
    events = fleet(drawn, 40, 0.9)
    file = tmp_path / "state" / "s.sqlite"
    first = 0
    for batch, part in enumerate(split(drawn, events, 40)):
        with Store(file) as store:
            include(State(store), part, first, batch)
        first += len(part)
        if batch % 10 == 0:
            Snapshots(file, tmp_path).refresh()
    Snapshots(file, tmp_path).refresh()
    wanted = expected(spark, events)
    assert wanted["health"].num_rows > 200
    for name in ("lost", "unheard", "duplicates", "reordered", "reboots"):
        assert sum(wanted["health"][name].to_pylist()) > 0, name
    assert {"lost", "silent"} == {*wanted["gaps"]["kind"].to_pylist()}
    compare(tmp_path, wanted, silences=True)


def test_closed_boots_stay_right(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over days, in which boots are closed and opened again by packs that come late."""
    monkeypatch.setattr(snapshots, "_BOOTS", 20)
    drawn = random.Random(6)
    events = fleet(drawn, 25, 12)
    file = tmp_path / "state" / "s.sqlite"
    first, opened = 0, 0
    with Store(file) as store:
        state = State(store)
        for batch, part in enumerate(split(drawn, events, 60)):
            include(state, part, first, batch)
            first += len(part)
            stale = store.db.execute("SELECT count(*) FROM parts WHERE stale").fetchone()[0]
            opened += stale
            Snapshots(file, tmp_path).refresh()
        closed = "SELECT count(*) FROM boots WHERE part IS NOT NULL"
        count, every = (
            store.db.execute(text).fetchone()[0] for text in (closed, "SELECT count(*) FROM boots")
        )
    assert opened and every > count > every / 3
    assert len(list((tmp_path / "health").iterdir())) > 3
    wanted = expected(spark, events)
    compare(tmp_path, wanted, silences=False)
    # What a user removes is written again.
    for path in (tmp_path / "state" / "s.closed" / "health").iterdir():
        path.unlink()
        break
    Snapshots(file, tmp_path).refresh()
    compare(tmp_path, wanted, silences=False)


def test_a_forgotten_device_leaves_the_files_of_closed_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_BOOTS", 20)
    drawn = random.Random(6)
    file = tmp_path / "state" / "s.sqlite"
    first = 0
    with Store(file) as store:
        state = State(store)
        for batch, part in enumerate(split(drawn, fleet(drawn, 8, 6), 10)):
            include(state, part, first, batch)
            first += len(part)
            Snapshots(file, tmp_path).refresh()

    def rows(name: str) -> list[str]:
        table = ds.dataset(tmp_path / name, format="parquet").to_table()
        return sorted(map(str, table.to_pylist()))

    before = {name: rows(name) for name in snapshots.NAMES}
    assert forget.remove(file, "d3") > 0
    Snapshots(file, tmp_path).refresh()
    for name, found in before.items():
        assert rows(name) == [row for row in found if "'d3'" not in row] != found
    closed = ds.dataset(file.parent / "s.closed" / "health", format="parquet").to_table()
    assert "d3" not in closed["device"].to_pylist() and len(closed)
    assert forget.remove(file, "d3") == 0


def test_silence_counts_to_the_newest_message_and_a_wrong_clock_is_forgotten(
    tmp_path: Path,
) -> None:
    file = tmp_path / "state" / "s.sqlite"
    with Store(file) as store:
        state = State(store)
        steady = [Event(10.0 * n, "a", 1, n) for n in range(1, 20)]
        include(state, steady, 0, 0)
        include(state, [Event(400 * DAY, "a", 1, 20)], 100, 1)
        include(state, [Event(200.0, "a", 1, 21), Event(205.0, "b", 1, 1)], 200, 2)
        Snapshots(file, tmp_path).refresh()
    rows = keyed(ds.dataset(tmp_path / "devices", format="parquet").to_table(), "device")
    assert (rows["a",]["silent_s"], rows["a",]["silent"]) == (5.0, False)
    assert rows["a",]["usual_s"] == pytest.approx(10)
    heard = datetime.datetime.fromtimestamp(START / US + 200, datetime.timezone.utc)
    assert rows["a",]["heard"] == heard
