"""The tables of health of a fleet in which everything goes wrong: a run's, and an oracle's."""

import contextlib
import datetime
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import sizes
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.jobs import limits
from flatmq_tools.pipeline.jobs.limits import FAR, MOST
from flatmq_tools.pipeline.state import forget, groups, snapshots
from flatmq_tools.pipeline.state.arrivals import State, Status
from flatmq_tools.pipeline.state.history import Arrivals
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.state.taking import KEYS
from pipeline import oracle_health
from pipeline.oracle_health import Event

NEAR = groups.WIDTH - 1
US = 1_000_000
START = 1_772_366_400 * US
DAY = 86_400.0


def micros(event: Event) -> int:
    return START + round(event.at * US)


def columns(events: Sequence[tuple[int, Event]]) -> pa.Table:
    """Return the columns of packs, by offset, that the state needs."""
    rows = [
        {
            "device": e.device, "boot": None if e.seq == -1 else e.boot,
            "seq": None if e.seq == -1 else e.seq, "at": micros(e), "offset": offset,
            "delay": None if e.delay is None else round(e.delay * 1000), "row": row,
            "retain": e.status == "retain", "dup": e.status == "dup",
        }
        for row, (offset, e) in enumerate(events)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, KEYS.append(pa.field("row", pa.int64())))


def include(state: State, events: Sequence[Event], first: int, batch: int) -> None:
    """Include a batch in the state, as a process does that was killed before it wrote."""
    numbered = list(enumerate(events, first))
    packs = [(n, e) for n, e in numbered if e.seq is not None and e.seq >= 0]
    random.Random(batch).shuffle(packs)
    table = columns(packs)
    unnumbered = Arrivals.of(columns([(n, e) for n, e in numbered if e.seq == -1]))
    newest: dict[str, Status] = {}
    for n, e in numbered:
        if e.seq is None:
            newest[e.device] = Status(e.device, e.status[:32] or None, micros(e), n)
    state.mark(Arrivals.of(table))
    marked = state.mark(Arrivals.of(table), list(newest.values()), micros(events[-1]), unnumbered)
    state.commit(marked, Place("query", batch, None))


def by_state(folder: Path, parts: Sequence[Sequence[Event]], every: int = 10) -> tuple[int, int]:
    """Write the tables after each `every` batches; return how many boots reopened, and closed."""
    file = folder / "state" / "s.sqlite"
    first = opened = 0
    for batch, part in enumerate(parts):
        with Store(file) as store:  # opened again for each, as by a restart
            include(State(store), part, first, batch)
            first += len(part)
            opened += store.db.execute("SELECT count(*) FROM parts WHERE stale").fetchone()[0]
        if batch % every == 0:
            Snapshots(file, str(folder)).refresh()
    Snapshots(file, str(folder)).refresh()
    with Store(file) as store:
        closed = "SELECT count(*) FROM closed_boots"
        return opened, store.db.execute(closed).fetchone()[0]


NAMES = ("health", "devices", "gaps")


def written(folder: Path) -> dict[str, pa.Table]:
    """Return the tables, but not which boots are closed: that depends on the batches."""
    tables = {name: DeltaTable(str(folder / name)).to_pyarrow_table() for name in NAMES}
    return {
        name: table.drop_columns([c for c in ("closed", "part") if c in table.column_names])
        for name, table in tables.items()
    }


def keyed(table: pa.Table, *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


class Boot(NamedTuple):
    """The counts of a boot."""

    received: int
    lost: int = 0
    unheard: int = 0
    duplicates: int = 0
    reordered: int = 0
    reboots: int = 0


# By device: boot and number of each pack, in the order in which they come, and its boots.
FAULTS: dict[str, tuple[list[tuple[int, int]], dict[int, Boot]]] = {
    "sound": ([(1, 1), (1, 2), (1, 3)], {1: Boot(3)}),
    "lost": ([(1, 1), (1, 2), (1, 5), (1, 7)], {1: Boot(4, lost=3)}),
    # Before anybody heard the board at all, a loss looks the same as not listening.
    "late": ([(1, 4), (1, 5)], {1: Boot(2, unheard=3)}),
    "head": ([(1, 1), (2, 3), (2, 4)], {1: Boot(1), 2: Boot(2, lost=2, reboots=1)}),
    "twice": ([(1, 1), (1, 2), (1, 2), (1, 1), (1, 3)], {1: Boot(3, duplicates=2)}),
    "held": ([(1, 1), (1, 3), (1, 2), (1, 6), (1, 5)], {1: Boot(5, lost=1, reordered=2)}),
    "all": ([(1, 2), (1, 5), (1, 4), (1, 5)], {1: Boot(3, 1, 1, 1, 1)}),
    # Boots that sent nothing started all the same. Packs of an older boot may come later, and
    # flash that was erased counts from anywhere.
    "flash": (
        [(3, 1), (6, 1), (3, 2), (700_000, 2), (700_000, 2)],
        {3: Boot(2), 6: Boot(1, reboots=3), 700_000: Boot(1, lost=1, duplicates=1, reboots=1)},
    ),
    "counted on": (
        [(1, 1), (1 + FAR, 1), (2 + 2 * FAR, 1)],
        {1: Boot(1), 1 + FAR: Boot(1, reboots=FAR), 2 + 2 * FAR: Boot(1, reboots=1)},
    ),
    # Of what is missing between these there is a sum.
    "far": (
        [(1, 1), (1, MOST - 1), (2, 1), (2, MOST - 1)],
        {1: Boot(2, lost=MOST - 3), 2: Boot(2, lost=MOST - 3, reboots=1)},
    ),
    **{name: ([(1, 1)], {1: Boot(1)}) for name in ("$x_{$", "a\0b", "\x1b[2J", "<b>")},
}  # fmt: skip


def steady(device: str, *stretches: tuple[int, int]) -> list[Event]:
    """A pack each 10 s in each stretch of time."""
    times = [at for begin, end in stretches for at in range(begin, end + 1, 10)]
    return [Event(at, device, 1, n) for n, at in enumerate(times, 1)]


def plain(device: str, *times: float, mark: str = "") -> list[Event]:
    """Packs without numbers."""
    return [Event(at, device, 0, -1, None, mark) for at in times]


# By device: what it sends; its status, whether and for how long it is silent, and what is usual.
SILENCES: dict[str, tuple[list[Event], tuple[object, ...]]] = {
    "fine": (
        [Event(0, "fine", status="offline"), *steady("fine", (0, 1000)),
         Event(1, "fine", status="online")],
        ("online", False, 0, 10),
    ),
    "stuck": ([Event(1, "stuck", status="online"), *steady("stuck", (0, 960))],
              ("online", True, 40, 10)),
    "dead": ([*steady("dead", (0, 900)), Event(915, "dead", status="offline")],
             ("offline", True, 100, 10)),
    "asleep": ([*steady("asleep", (0, 850)), Event(851, "asleep", status="asleep")],
               ("asleep", False, 150, 10)),
    "away": (steady("away", (0, 200), (600, 1000)), (None, False, 0, 10)),
    # Packs that came at once have no usual interval to speak of.
    "burst": ([Event(999.2 + n / 1000, "burst", 1, n) for n in range(1, 11)],
              (None, False, 0.79, 0.001)),
    # Who never sent a pack is known by its status.
    "mute": ([Event(3, "mute", status="online")], ("online", False, None, None)),
    "gone": ([Event(4, "gone", status="")], (None, False, None, None)),
    # A board that was heard once is silent after what is usual in the fleet.
    "once": ([Event(990, "once", 5, 1)], (None, False, 10, None)),
    "alone": ([Event(500, "alone", 5, 1)], (None, True, 500, None)),
    # Two messages each minute; and a door, whose longest interval is long.
    "plug": (plain("plug", *range(0, 601, 60), *(at + 0.1 for at in range(0, 601, 60))),
             (None, True, 399.9, 59.9)),
    "door": ([*plain("door", 0, 10, 500, 520, 990), *plain("door", 991, mark="dup")],
             (None, False, 9, None)),
    "nap": ([*plain("nap", *range(0, 601, 60)), Event(602, "nap", status="asleep")],
            ("asleep", False, 400, 60)),
    "kept": (plain("kept", 1, mark="retain"), (None, False, None, None)),
}  # fmt: skip
DELAYS = {"delayed": [float(n) for n in range(1, 101)], "ahead": [-4000.0], "no-clock": [None]}


def cases() -> list[Event]:
    events = [event for sent, _ in SILENCES.values() for event in sent]
    for device, (packs, _) in FAULTS.items():
        events += [Event(10 * n, device, *pack) for n, pack in enumerate(packs)]
    for device, delays in DELAYS.items():
        events += [Event(10 * n, device, 1, n + 1, delay) for n, delay in enumerate(delays)]
    return sorted(events, key=lambda event: event.at)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of all cases, as the oracle has them."""
    folder = tmp_path_factory.mktemp("tables")
    by_state(folder, split(random.Random(1), cases(), 20))
    compare(folder, oracle_health.tables(cases()))
    return written(folder)


def test_every_fault_of_a_boot_is_found(tables: dict[str, pa.Table]) -> None:
    boots = keyed(tables["health"], "device", "boot")
    devices = keyed(tables["devices"], "device")
    gaps = tables["gaps"].to_pylist()
    for device, (_, expected) in FAULTS.items():
        found = {boot: row for (of, boot), row in boots.items() if of == device}
        assert {
            boot: Boot(*(row[name] for name in Boot._fields)) for boot, row in found.items()
        } == expected, device
        for name in Boot._fields:
            total = sum(getattr(boot, name) for boot in expected.values())
            assert devices[device,][name] == total, (device, name)
        missing = [row["missing"] for row in gaps if row["device"] == device and row["missing"]]
        assert sum(missing) == sum(boot.lost for boot in expected.values()), device
    assert all(row["since"] <= row["until"] for row in gaps)


def test_delays_need_a_time_of_the_board(tables: dict[str, pa.Table]) -> None:
    boots = keyed(tables["health"], "device", "boot")
    for device, expected in (
        ("delayed", (50, 95, 99)), ("ahead", (-4000,) * 3), ("no-clock", (None,) * 3),
    ):  # fmt: skip
        for name, value in zip(("delay_p50", "delay_p95", "delay_p99"), expected, strict=True):
            near = None if value is None else pytest.approx(value, rel=NEAR)
            assert boots[device, 1][name] == near, (device, name)


def test_status_and_silence(tables: dict[str, pa.Table]) -> None:
    """The newest status holds; who is asleep is not silent."""
    rows = keyed(tables["devices"], "device")
    silent = {row["device"] for row in tables["gaps"].to_pylist() if row["kind"] == "silent"}
    for device, (_, (status, is_silent, silent_s, usual)) in SILENCES.items():
        row = rows[device,]
        assert (row["status"], row["silent"]) == (status, is_silent), device
        assert row["silent_s"] == (None if silent_s is None else pytest.approx(silent_s)), device
        if usual is not None:
            assert row["usual_s"] == pytest.approx(usual, rel=NEAR), device
    assert {"away", "stuck", "dead"} <= silent and not {"fine", "burst"} & silent
    (gap,) = (row for row in tables["gaps"].to_pylist() if row["device"] == "away")
    assert (gap["until"] - gap["since"]).total_seconds() == 400
    names = ("boots", "received", "duplicates", "lost", "heard")
    assert [rows["plug",][name] for name in names[:4]] == [0, 22, 0, None]
    assert [rows["door",][name] for name in names[:4]] == [0, 5, 1, None]
    assert [rows["kept",][name] for name in names] == [0, 0, 1, None, None]


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


def split(drawn: random.Random, events: list[Event], parts: int) -> list[list[Event]]:
    cuts = sorted(drawn.sample(range(1, len(events)), parts - 1))
    return [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]


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


def compare(folder: Path, wanted: dict[str, pa.Table], silences: bool = False) -> None:
    found = written(folder)
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

        def silent(table: pa.Table) -> list[tuple[Any, ...]]:
            rows = [row for row in table.to_pylist() if row["kind"] == "silent"]
            return sorted(
                (row["device"], row["boot"], row["since"], row["until"])
                for row in rows
                if abs(
                    (row["until"] - row["since"]).total_seconds()
                    / (limits.QUIET * (usual[row["device"]] or fleet)) - 1
                ) > NEAR
            )  # fmt: skip

        assert silent(found["gaps"]) == silent(wanted["gaps"])


def test_a_day_in_any_batches_is_as_from_scratch(tmp_path: Path) -> None:
    drawn = random.Random(5)
    events = fleet(drawn, 40 if sizes.whole() else 15, 0.9)
    by_state(tmp_path, split(drawn, events, 20))
    wanted = oracle_health.tables(events)
    assert wanted["health"].num_rows > 60
    for name in ("lost", "unheard", "duplicates", "reordered", "reboots"):
        assert sum(wanted["health"][name].to_pylist()) > 0, name
    assert {"lost", "silent"} == {*wanted["gaps"]["kind"].to_pylist()}
    compare(tmp_path, wanted, silences=True)


def test_closed_boots_stay_right_and_a_forgotten_device_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over days, in which boots are closed and opened again by packs that come late."""
    monkeypatch.setattr(snapshots, "_BOOTS", 20)
    drawn = random.Random(6)
    events = fleet(drawn, 25 if sizes.whole() else 12, 12)
    opened, closed = by_state(tmp_path, split(drawn, events, 20), every=1)
    by_state(tmp_path / "scratch", [events])
    wanted = written(tmp_path / "scratch")
    count = wanted["health"].num_rows
    assert opened and count > closed > count / 3
    compare(tmp_path, wanted)
    file = tmp_path / "state" / "s.sqlite"
    # What a user removes is written again.
    shutil.rmtree(tmp_path / "health")
    Snapshots(file, str(tmp_path)).refresh()
    compare(tmp_path, wanted)

    before = written(tmp_path)
    assert forget.remove(file, "d3") > 0
    Snapshots(file, str(tmp_path)).refresh()
    for name, table in written(tmp_path).items():
        rows = sorted(map(str, before[name].to_pylist()))
        left = [row for row in rows if "'d3'" not in row]
        assert sorted(map(str, table.to_pylist())) == left != rows
    assert forget.remove(file, "d3") == 0


def test_a_refresh_that_is_cut_off_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of its tables, whatever was closed or opened again meanwhile."""
    monkeypatch.setattr(snapshots, "_BOOTS", 20)
    drawn = random.Random(6)
    events = fleet(drawn, 12, 12)
    file = tmp_path / "state" / "s.sqlite"
    replace = Delta.replace
    first = 0
    for batch, part in enumerate(split(drawn, events, 13)):
        with Store(file) as store:
            include(State(store), part, first, batch)
        first += len(part)
        left = [None] * (batch % 4)

        def cut(*table: Any, left: list[None] = left, **more: Any) -> None:
            left.pop()  # an IndexError is the kill
            replace(*table, **more)

        with monkeypatch.context() as patch, contextlib.suppress(IndexError):
            patch.setattr(Delta, "replace", cut)
            Snapshots(file, str(tmp_path)).refresh()
        assert len(left) == 0
    Snapshots(file, str(tmp_path)).refresh()
    compare(tmp_path, oracle_health.tables(events))


def test_a_refresh_writes_no_row_of_a_closed_boot_again(tmp_path: Path) -> None:
    first = [Event(10.0 * n, "a", boot, n) for boot in (1, 2) for n in (1, 3)]
    events = [event._replace(at=event.at + 100 * event.boot) for event in first]
    later = [[Event(3 * DAY + 60.0 * n, "a", 2, 9 + n)] for n in range(3)]
    _, closed = by_state(tmp_path, [events, *later[:2]])
    assert closed == 1
    found = {}
    for name in ("health", "gaps"):
        table = DeltaTable(str(tmp_path / name))
        rows = table.to_pyarrow_table().to_pylist()
        assert {row["boot"] for row in rows if row["closed"]} == {1}
        assert {row["boot"] for row in rows if not row["closed"]} == {2}
        found[name] = {uri for uri in table.file_uris() if "part=0/" not in uri}
    file = tmp_path / "state" / "s.sqlite"
    snapshots = Snapshots(file, str(tmp_path))
    with Store(file) as store:
        for number, part in enumerate(later, 100):
            include(State(store), part, number, number)
            snapshots.refresh()
            uris = {name: DeltaTable(str(tmp_path / name)).file_uris() for name in found}
            assert found == {name: {u for u in uris[name] if "part=0/" not in u} for name in found}
            assert all(found.values())
        # What a user removes meanwhile is written again, with the refresh after one that fails.
        shutil.rmtree(tmp_path / "health")
        include(State(store), [Event(3 * DAY + 600.0, "a", 2, 20)], 200, 200)
        with pytest.raises(DeltaError):
            snapshots.refresh()
        snapshots.refresh()
        health = DeltaTable(str(tmp_path / "health")).to_pyarrow_table()
        assert sorted(health["boot"].to_pylist()) == [1, 2]


def test_a_state_of_an_earlier_day_is_what_the_tables_say(tmp_path: Path) -> None:
    """As after a disk was restored: what was written of closed boots since is no longer right."""

    def rows() -> dict[str, list[str]]:
        Snapshots(file, str(tmp_path)).refresh()
        return {name: sorted(map(str, t.to_pylist())) for name, t in written(tmp_path).items()}

    boots = [Event(100.0 * boot + n, "a", boot, n) for boot in (1, 2, 3, 4) for n in (1, 3)]
    by_state(tmp_path, [boots, [Event(3 * DAY, "a", 4, 4)]])
    file = tmp_path / "state" / "s.sqlite"
    before, kept = rows(), file.read_bytes()
    with Store(file) as store:
        include(State(store), [Event(3 * DAY + 1, "a", 1, 2)], 100, 100)
    assert rows() != before
    file.write_bytes(kept)
    assert rows() == before


SILENT = [
    *steady("a", (0, 200), (600, 1000)),
    *(Event(event.at + 1010, "a", 2, event.seq) for event in steady("a", (0, 400))),
]
# Batches after a first one, after each of which the tables are written: how many boots are closed.
STORIES: dict[str, tuple[list[Event], list[Event], int]] = {
    # The boot after theirs, which is closed again at once, and the one before a boot that is
    # heard late, are closed by then.
    "packs that come late change the gap after them": (
        [Event(0, "a", 1, 1), Event(100, "a", 2, 3), Event(200, "a", 4, 1)],
        [Event(3 * DAY, "a", 4, 2), Event(4.5 * DAY, "a", 1, 2), Event(4.6 * DAY, "a", 4, 3),
         Event(4.7 * DAY, "a", 3, 2), Event(5.1 * DAY, "a", 1, 3)],
        1,
    ),
    "silences of a boot stay when it is closed": (SILENT, [Event(3 * DAY, "a", 2, 42)], 1),
    "and when it is opened again": (
        SILENT, [Event(3 * DAY, "a", 2, 42), Event(3.2 * DAY, "a", 1, 63)], 0
    ),
    "closed boots without a gap stay": (
        [Event(10.0 * n + 40 * boot, "a", boot, n) for boot in (1, 2) for n in (1, 2, 3)],
        [Event(3 * DAY, "b", 1, 1)], 1,
    ),
    # Open boots are read and written with each pack of their device, and of its neighbours.
    "a device that always starts again has few open boots": (
        [Event(n, "a", n % 7 + n // 7 * 5, 1 + n % 2) for n in range(300)],
        [Event(n, "a", n % 7 + n // 7 * 5, 1 + n % 2) for n in range(300, 310)], 116,
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_boots_that_are_closed_and_opened_again(
    tmp_path: Path, story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_MANY", 30)
    first, later, closed = STORIES[story]
    assert by_state(tmp_path, [first, *([event] for event in later)], every=1)[1] == closed
    # What was usual when a boot was closed may be another thing now.
    compare(tmp_path, oracle_health.tables([*first, *later]), silences=first is SILENT)


def test_boots_that_are_closed_while_a_batch_is_written_are_there_once(tmp_path: Path) -> None:
    """The tables are refreshed in a thread of their own: here between mark and commit."""
    events = [Event(100.0 * boot + n, "a", boot, n) for boot in (1, 2, 3) for n in (1, 3)]
    late = [Event(3 * DAY, "a", 1, 2), Event(3 * DAY, "a", 1, 3), Event(3 * DAY, "b", 1, 1)]
    file = tmp_path / "state" / "s.sqlite"
    with Store(file) as store:
        state = State(store)
        include(state, events, 0, 0)
        store.db.execute("UPDATE place SET now = ?", (micros(late[0]),))
        table = columns([*enumerate(late, len(events))])
        marked = state.mark(Arrivals.of(table))
        Snapshots(file, str(tmp_path)).refresh()
        closed = "SELECT boot FROM closed_boots ORDER BY boot"
        assert store.db.execute(closed).fetchall() == [(1,), (2,)]
        state.commit(marked, Place("query", 1, None))
        assert store.db.execute(closed).fetchall() == [(2,)]
    assert marked.copies.tolist() == [1]
    Snapshots(file, str(tmp_path)).refresh()
    compare(tmp_path, oracle_health.tables([*events, *late]))


def test_silence_counts_to_the_newest_message_and_a_wrong_clock_is_forgotten(
    tmp_path: Path,
) -> None:
    steady = [Event(10.0 * n, "a", 1, n) for n in range(1, 20)]
    wrong = [Event(400 * DAY, "a", 1, 20)]
    by_state(tmp_path, [steady, wrong, [Event(200.0, "a", 1, 21), Event(205.0, "b", 1, 1)]])
    row = keyed(written(tmp_path)["devices"], "device")["a",]
    assert (row["silent_s"], row["silent"]) == (5.0, False)
    assert row["usual_s"] == pytest.approx(10)
    heard = datetime.datetime.fromtimestamp(START / US + 200, datetime.timezone.utc)
    assert row["heard"] == heard
