"""The state of a fleet in Delta tables: each reading once, whatever is cut or killed where."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from flatmq_tools.pipeline.fleet import boots, copies, pace, sums
from flatmq_tools.pipeline.fleet.health import Health
from flatmq_tools.pipeline.fleet.job import Job
from flatmq_tools.pipeline.fleet.table import Table
from flatmq_tools.pipeline.fleet.versions import Versions
from flatmq_tools.pipeline.jobs import measurements
from flatmq_tools.pipeline.jobs.columns import MESSAGE
from pipeline import landed
from pipeline.messages import Message, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
PACKS = (
    "device string, boot bigint, seq bigint, time timestamp, told boolean, reason string, "
    "timestamp timestamp, offset bigint, retain boolean, dup boolean, status string"
)
READINGS = "device string, boot bigint, seq bigint, offset bigint"
DAY = 86_400.0


class Killed(Exception):
    """Raised where a process would be killed."""


class Pack(NamedTuple):
    """A pack that came so many seconds after START; its delay is in ms."""

    at: float
    device: str | None
    boot: int | None = None
    seq: int | None = None
    delay: float | None = None
    reason: str | None = None
    retain: bool = False
    dup: bool = False
    status: str | None = None
    """Of a device: it is no pack."""


def moment(seconds: float) -> datetime.datetime:
    return START + datetime.timedelta(microseconds=round(seconds * 1e6))


_US = pa.timestamp("us", "UTC")


def table(packs: Sequence[Pack], offset: int) -> pa.Table:
    return pa.table(
        {
            "device": pa.array([p.device for p in packs], pa.string()),
            "boot": pa.array([p.boot for p in packs], pa.int64()),
            "seq": pa.array([p.seq for p in packs], pa.int64()),
            "time": pa.array([moment(p.at - (p.delay or 0) / 1000) for p in packs], _US),
            "told": pa.array([p.delay is not None for p in packs]),
            "reason": pa.array([p.reason for p in packs], pa.string()),
            "timestamp": pa.array([moment(p.at) for p in packs], _US),
            "offset": pa.array(range(offset, offset + len(packs)), pa.int64()),
            "retain": pa.array([p.retain for p in packs]),
            "dup": pa.array([p.dup for p in packs]),
            "status": pa.array([p.status for p in packs], pa.string()),
        }
    )


def only_packs(rows: DataFrame) -> DataFrame:
    return rows.where("status IS NULL").drop("status")


def statuses(rows: DataFrame) -> DataFrame:
    return rows.sparkSession.sql(
        """SELECT device, max_by(struct(IF(status = '', NULL, status) AS status, timestamp AS at,
            offset), struct(timestamp, offset)) AS status
        FROM {rows} WHERE status IS NOT NULL GROUP BY device""",
        rows=rows,
    )


class Fleet:
    """The table of packs, and the job that makes readings of it, opened again for each run."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int = 1_000_000) -> None:
        self.spark, self.folder, self.rows = spark, folder, rows
        self.count = 0
        self.unsure = 0
        self.close = 0.0
        self.sums = False

    def land(self, packs: Sequence[Pack]) -> None:
        """Add a version."""
        write_deltalake(self.folder / "packs", table(packs, self.count), mode="append")
        self.count += len(packs)

    def job(self, make: type[Table] = Table) -> Job:
        state = make(self.spark, self.folder / "state", boots.STATE, boots.BY)
        readings = make(self.spark, self.folder / "readings", READINGS)
        dead = make(self.spark, self.folder / "dead", "offset bigint, reason string")
        added = make(self.spark, self.folder / "sums", sums.SUMS)

        def outputs(
            messages: DataFrame, frame: DataFrame, counts: copies.Counts
        ) -> dict[str, DataFrame | None]:
            return {
                "readings": frame.where("fresh") if counts.fresh else None,
                "dead": frame.where("reason IS NOT NULL") if counts.dead else None,
                "sums": sums.of_batch(messages, frame) if self.sums else None,
            }

        def unsure(count: int) -> None:
            self.unsure += count

        work = copies.Copies(state, only_packs, statuses, outputs, unsure, self.close)
        source = Versions(self.folder / "packs", self.rows)
        tables = {"readings": readings, "dead": dead, "sums": added}
        return Job("readings", source, PACKS, tables, state, work)

    def run(self) -> int:
        return sum(1 for _ in self.job().steps())

    def rowsof(self, name: str) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(str(self.folder / name)):
            return []
        return DeltaTable(self.folder / name).to_pyarrow_table().to_pylist()

    def readings(self) -> list[tuple[Any, ...]]:
        return sorted(
            ((r["device"], r["boot"], r["seq"], r["offset"]) for r in self.rowsof("readings")),
            key=str,
        )

    def known(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The boots in the state."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        rows = self.rowsof("state")
        opened: dict[str, int] = {}
        for row in rows:
            device = row["device"]
            opened[device] = max(opened.get(device, -1), row["reopened"] or -1)
        newest: dict[str, int] = {}
        for row in rows:
            if row["bucket"] == boots.OPEN:
                device = row["device"]
                newest[device] = max(newest.get(device, -1), row["version"])
        for row in rows:
            is_open = row["bucket"] == boots.OPEN
            since = newest[row["device"]] if is_open else opened[row["device"]]
            for boot in row["boots"] if row["version"] >= since else ():
                assert (row["device"], boot["boot"]) not in found
                found[row["device"], boot["boot"]] = boot
        return found


def expected(packs: Sequence[Pack]) -> list[tuple[Any, ...]]:
    """The readings, each once."""
    seen: set[tuple[Any, ...]] = set()
    found = []
    for offset, p in enumerate(packs):
        key = (p.device, p.boot, p.seq) if p.boot is not None else (offset,)
        if p.reason is None and key not in seen:
            seen.add(key)
            found.append((p.device, p.boot, p.seq, offset))
    return sorted(found, key=str)


def ranges(packs: Sequence[Pack]) -> dict[tuple[str, int], dict[str, Any]]:
    """The expected state of each boot."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    at: dict[tuple[str, int], dict[int, float]] = {}
    for p in packs:
        if p.boot is None or p.reason is not None:
            continue
        key = (str(p.device), p.boot)
        seen = at.setdefault(key, {})
        row = found.setdefault(key, {"duplicates": 0, "reordered": 0, "first": p.at, "last": p.at})
        row["first"], row["last"] = min(row["first"], p.at), max(row["last"], p.at)
        if p.seq in seen:
            row["duplicates"] += 1
        else:
            row["reordered"] += bool(seen) and p.seq < max(seen)
            seen[p.seq] = p.at
    for key, seen in at.items():
        numbers = sorted(seen)
        begins = [n for n in numbers if n - 1 not in seen]
        ends = [n for n in numbers if n + 1 not in seen]
        found[key] |= {
            "received": len(seen),
            "ranges": [
                {"lo": a, "hi": z, "lo_at": moment(seen[a]), "hi_at": moment(seen[z])}
                for a, z in zip(begins, ends, strict=True)
            ],
            "lowest": numbers[0], "lowest_at": moment(seen[numbers[0]]),
            "highest": numbers[-1], "highest_at": moment(seen[numbers[-1]]),
            "first": moment(found[key]["first"]), "last": moment(found[key]["last"]),
        }  # fmt: skip
    return found


def check(fleet: Fleet, packs: Sequence[Pack]) -> None:
    assert fleet.readings() == expected(packs)
    dead = [n for n, p in enumerate(packs) if p.reason is not None]
    assert sorted(row["offset"] for row in fleet.rowsof("dead")) == dead
    known, wanted = fleet.known(), ranges(packs)
    assert known.keys() == wanted.keys()
    for key, boot in wanted.items():
        assert {name: known[key][name] for name in boot} == boot, key


def made(drawn: random.Random, devices: int, days: float) -> list[Pack]:
    """Devices that lose, repeat, swap and hold back packs, and restart; and dead letters."""
    packs: list[Pack] = []
    for number in range(devices):
        name, now, boot = f"d{number}", drawn.uniform(0, 100), drawn.choice([0, 1, 7])
        every = drawn.choice([10.0, 60.0]) * max(1.0, days * 20)
        while now < days * DAY:
            boot += drawn.choice([1, 1, 2, 5000])
            for seq in range(drawn.choice([0, 1, 3]), drawn.randrange(5, 60)):
                now += every * drawn.uniform(0.9, 1.1)
                fate = drawn.random()
                if fate < 0.1:
                    continue
                late = drawn.uniform(0, 4 * DAY) if fate < 0.15 else 0
                packs.append(Pack(now + late, name, boot, seq, drawn.choice([None, 250.0])))
                if fate < 0.3:
                    again = now + drawn.choice([0, every / 3, 50 * every])
                    packs.append(Pack(again, name, boot, seq))
            if drawn.random() < 0.2:
                packs.append(Pack(now, None, reason="no pack"))
                packs.append(Pack(now, "z", None, None, retain=drawn.random() < 0.5))
    packs.sort(key=lambda p: p.at)
    return packs


def cut(drawn: random.Random, packs: Sequence[Pack], parts: int) -> Iterator[Sequence[Pack]]:
    cuts = sorted(drawn.sample(range(1, len(packs)), parts - 1))
    for a, b in zip([0, *cuts], [*cuts, len(packs)], strict=True):
        yield packs[a:b]


@pytest.mark.parametrize("small", [0, 20_000], ids=["appended", "written again"])
def test_a_fleet_in_any_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Boots are closed and opened again, and the state is written again now and then."""
    monkeypatch.setattr(copies, "_SMALL", small)
    drawn = random.Random(3)
    packs = made(drawn, 8, 9)
    fleet = Fleet(spark, tmp_path, rows=len(packs) // 8)
    for part in cut(drawn, packs, 14):
        fleet.land(part)
        if drawn.random() < 0.7:
            fleet.run()
    fleet.run()
    check(fleet, packs)
    rows = fleet.rowsof("state")
    assert any(row["bucket"] != boots.OPEN for row in rows)
    assert any(row["reopened"] for row in rows)
    assert fleet.run() == 0


def test_a_run_that_is_killed_between_any_two_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Before, between and after the commits of a batch; more has come when it starts again."""
    drawn = random.Random(4)
    packs = [
        *(Pack(n, f"d{n % 3}", 1, n // 3) for n in range(30)),
        Pack(31, None, reason="no pack"),
    ]
    packs += [p._replace(at=40 + p.at) for p in drawn.sample(packs, 20)]
    fleet = Fleet(spark, tmp_path)
    parts = cut(drawn, packs, 6)
    for kill in range(3):
        fleet.land(next(parts))

        class Mortal(Table):
            """It dies before one of the commits."""

            left = kill

            def commit(self, *args: Any, **more: Any) -> int:
                if not Mortal.left:
                    raise Killed
                Mortal.left -= 1
                return super().commit(*args, **more)

        with pytest.raises(Killed):
            fleet.job(Mortal).step()
        fleet.land(next(parts))
        fleet.run()
    check(fleet, packs)


def test_a_boot_with_more_gaps_than_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs below them are kept and counted, and they are one gap from then on."""
    monkeypatch.setattr(boots, "RANGES", 5)
    fleet = Fleet(spark, tmp_path)
    numbers = [*range(0, 40, 2)]
    fleet.land([Pack(n, "a", 1, n) for n in numbers])
    fleet.run()
    fleet.land([Pack(100 + n, "a", 1, n) for n in (38, 4, 33, 3)])
    fleet.run()
    assert fleet.unsure == 2
    assert sorted(r["seq"] for r in fleet.rowsof("readings")) == sorted([*numbers, 33, 4, 3])
    boot = fleet.known()["a", 1]
    assert [r["lo"] for r in boot["ranges"]] == [30, 32, 36, 38]
    # Fourteen were missing below 30; two packs may be of these.
    assert (boot["floor"], boot["old_missing"], boot["unsure"]) == (29, 15 - 2, 2)
    assert (boot["received"], boot["duplicates"]) == (23, 1)
    assert boot["old_since"] == moment(0)


def test_batches_are_limited_and_a_rewritten_table_is_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A version may be cut between its files, and what a merge rewrites is not read again."""
    fleet = Fleet(spark, tmp_path, rows=10)
    packs = [Pack(n, "a", 1, n) for n in range(40)]
    for n in range(0, 20, 5):
        fleet.land(packs[n : n + 5])
    assert fleet.run() == 2
    DeltaTable(tmp_path / "packs").optimize.compact()
    fleet.land(packs[20:])
    fleet.run()
    check(fleet, packs)


def test_sums_by_time(spark: SparkSession, tmp_path: Path) -> None:
    """They are the same in any batches, and when they were folded; old steps become wider."""
    drawn = random.Random(8)
    packs = made(drawn, 3, 4)
    fleet = Fleet(spark, tmp_path)
    fleet.sums = True
    table = Table(spark, tmp_path / "sums", sums.SUMS)
    for part in cut(drawn, packs, 2):
        fleet.land(part)
        fleet.run()
        sums.fold(table, "readings")
    rows = fleet.rowsof("sums")
    keys = [(r["kind"], r["at"], r["device"], r["numbered"]) for r in rows]
    assert len({*keys}) == len(keys)
    of = {kind: [r for r in rows if r["kind"] == kind] for kind in sums.WIDTHS}
    assert sum(r["messages"] for r in of["fleet"]) == len(packs)
    assert sum(r["dead"] for r in of["fleet"]) == sum(p.reason is not None for p in packs)
    wanted = ranges(packs)
    for device in {p.device for p in packs} - {None, "z"}:
        mine = [r for r in of["device"] if r["device"] == device]
        known = [row for (of_, _), row in wanted.items() if of_ == device]
        for name in ("received", "duplicates", "reordered"):
            assert sum(r[name] for r in mine) == sum(row[name] for row in known), name
        lost = sum(r["highest"] - r["lowest"] - r["received"] + 1 for r in known)
        assert sum(r["missing"] for r in mine) == lost
    delays = sum(n for r in of["device"] for _, n in r["delays"])
    assert delays == sum(n for r in of["fleet"] for _, n in r["delays"])
    newest = max(r["at"] for r in of["device"])
    widths = {r["at"] % sums.DAY == 0 for r in of["device"] if r["at"] < newest - 4 * sums.DAY}
    assert widths == {True} and any(r["at"] % sums.DAY for r in of["device"])


def test_messages_of_boards(spark: SparkSession, tmp_path: Path) -> None:
    """From raw to measurements, dead letters and devices, with a copy and a status."""
    messages = [
        reading("a", 1, 1, 0), reading("a", 1, 2, 1), reading("a", 1, 2, 2),
        Message("dev/a/telemetry", b"no pack", 3), Message("dev/a/status", b"online", 4),
    ]  # fmt: skip
    write_deltalake(tmp_path / "raw", landed.table(messages, 0))
    values = "device string, boot bigint, seq bigint, quantity string, value double"
    tables = {
        "measurements": Table(spark, tmp_path / "measurements", values),
        "dead_letters": Table(spark, tmp_path / "dead", "payload binary, reason string"),
    }
    state = Table(spark, tmp_path / "state", boots.STATE, boots.BY)

    def outputs(
        messages: DataFrame, frame: DataFrame, counts: copies.Counts
    ) -> dict[str, DataFrame | None]:
        fresh = measurements.values(frame.where("fresh"))
        return {"measurements": fresh, "dead_letters": measurements.dead(frame)}

    work = copies.Copies(state, measurements.packs, pace.statuses, outputs)
    schema = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
    assert Job("m", Versions(tmp_path / "raw"), schema, tables, state, work).step()
    found = tables["measurements"].read(tables["measurements"].files()).collect()
    assert sorted((r.device, r.boot, r.seq) for r in found) == [("a", 1, 1), ("a", 1, 2)]
    (letter,) = tables["dead_letters"].read(tables["dead_letters"].files()).collect()
    assert bytes(letter.payload) == b"no pack"
    (device,) = Health(state).devices().collect()
    assert (device.received, device.duplicates, device.status) == (2, 1, "online")
