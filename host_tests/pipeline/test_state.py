"""The state of the driver: the same marks and counts as from all messages at once."""

import contextlib
import random
import sqlite3
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sizes
from flatmq_tools.pipeline.state import arrivals, history, records
from flatmq_tools.pipeline.state.arrivals import Marked, State, Status
from flatmq_tools.pipeline.state.batch import Batch
from flatmq_tools.pipeline.state.history import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Arrivals,
    Dead,
    came,
)
from flatmq_tools.pipeline.state.periods import Periods, Piece
from flatmq_tools.pipeline.state.records import OPEN, SILENCES, Records
from flatmq_tools.pipeline.state.snapshots import Known, Snapshots
from flatmq_tools.pipeline.state.store import Place, StateError, Store
from flatmq_tools.pipeline.state.taking import KEYS, Taken

HIGHEST = (1 << 63) - 1


COLUMNS = KEYS.append(pa.field("row", pa.int64()))


class Pack(NamedTuple):
    device: str
    boot: int
    seq: int
    at: int


def taken(
    state: State, packs: list[Pack], first: int = 0, dead: Sequence[Dead] = ()
) -> Marked:  # fmt: skip
    """Mark packs that arrived in this order."""
    rows = [
        {**pack._asdict(), "row": n, "offset": first + n, "delay": 1000}
        for n, pack in enumerate(packs)
    ]
    arrivals = Arrivals.of(pa.Table.from_pylist(rows, COLUMNS))
    return state.mark(arrivals, came=came(arrivals.at), dead=dead)


def included(
    state: State, packs: list[Pack], batch: int = 0, dead: Sequence[Dead] = ()
) -> set[int]:  # fmt: skip
    """Include a batch; return the rows of its copies."""
    marked = taken(state, packs, batch * 1000, dead)
    state.commit(marked, Place("query", batch, None))
    return set(marked.copies.tolist())


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    store = Store(tmp_path / "state" / "one.sqlite")
    yield State(store)
    store.close()


numbers = st.integers(0, 40) | st.integers(0, HIGHEST) | st.sampled_from([0, HIGHEST, HIGHEST - 1])
packs = st.builds(
    Pack, st.sampled_from(["a", "b"]), st.sampled_from([0, 1, 2, HIGHEST]), numbers,
    st.integers(0, 1000),
)  # fmt: skip


@settings(max_examples=60 if sizes.whole() else 25)
@given(st.lists(st.lists(packs, max_size=12), max_size=6))
def test_a_pack_is_a_copy_if_its_reading_was_there_before(batches: list[list[Pack]]) -> None:
    """Whatever the numbers and times are, and however the packs fall into batches."""
    with tempfile.TemporaryDirectory() as folder:
        seen: set[tuple[str, int, int]] = set()
        counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        for number, batch in enumerate(batches):
            store = Store(Path(folder) / "state.sqlite")  # opened again for each, as by a restart
            state = State(store)
            wrong = taken(state, batch[::2])  # a batch that was never finished
            assert len(wrong.copies) <= len(batch)
            copies = included(state, batch, number)
            for n, pack in sorted(enumerate(batch), key=lambda each: (each[1].at, each[0])):
                assert (n in copies) == (pack[:3] in seen), (number, n)
                found = counts[pack[:2]]
                if pack[:3] in seen:
                    found[1] += 1
                else:
                    highest = max((s[2] for s in seen if s[:2] == pack[:2]), default=-1)
                    found[2] += pack.seq < highest
                    found[0] += 1
                    seen.add(pack[:3])
            boots = Records.paged(store.db, OPEN)
            names = dict(store.db.execute("SELECT id, name FROM devices"))
            store.close()
            rows = [
                (names[device], *row)
                for device, *row in zip(
                    *(boots[name].tolist() for name in (
                        "device", "boot", "received", "duplicates", "reordered", "lowest",
                        "highest",
                    )), strict=True,
                )
            ]  # fmt: skip
            assert {row[:2]: [*row[2:5]] for row in rows} == counts
            for name, boot, *_, lowest, highest in rows:
                own = [seq for device, of, seq in seen if (device, of) == (name, boot)]
                assert (lowest, highest) == (min(own), max(own))


def test_a_boot_is_bounded_and_what_may_be_a_copy_is_kept(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(1)
    for batch in range(2):
        flood = [Pack("z", 1, drawn.randrange(HIGHEST), n) for n in range(1500)]
        assert included(state, flood, batch) == set()

    def ranges() -> int:
        return len(Records.paged(state.store.db, OPEN).lists["ranges"][0])

    assert ranges() == arrivals.RANGES
    state.store.clear()
    monkeypatch.setattr(arrivals, "RANGES", 10)
    odd = [Pack("a", 1, 2 * n + 3, n) for n in range(30)]
    assert included(state, odd, 0) == set()
    assert ranges() == 10
    # The ten highest ranges are known; what lies below them may be a copy or not, and is kept.
    marked = taken(state, [Pack("a", 1, 3, 50), Pack("a", 1, 1, 51), Pack("a", 1, 61, 52)], 1000)
    assert (marked.copies.tolist(), marked.unsure) == ([2], 2)
    state.commit(marked, Place("query", 1, None))
    boots = Records.paged(state.store.db, OPEN)
    row = [boots[name].item() for name in ("old_missing", "lowest", "lowest_at")]
    assert row == [20 - 2, 1, 51]


def test_a_batch_costs_what_is_in_it(state: State) -> None:
    """Few rows are written, however many other devices there are."""
    included(state, [Pack(f"d{n}", 1, 1, n) for n in range(2000)], 0)
    before = state.store.db.total_changes
    included(state, [Pack("d7", 1, 2, 5000), Pack("d9", 1, 2, 5001)], 1)
    assert state.store.db.total_changes - before < 40


def test_a_query_that_was_left_behind_changes_nothing(state: State) -> None:
    """It was stopped, and finishes a batch after the next one has done that, or more."""
    late = taken(state, [Pack("a", 1, 1, 1)])
    with Store(state.store.file) as store:
        included(State(store), [Pack("a", 1, 1, 1)], 0)
        state.commit(late, Place("query", 0, None))
        included(State(store), [Pack("a", 1, 2, 2)], 1)
        with pytest.raises(StateError, match=r"one\.sqlite: another query goes on"):
            state.commit(late, Place("query", 0, None))
        again = taken(State(store), [Pack("a", 1, n, 3) for n in (1, 2, 3)])
        assert again.copies.tolist() == [0, 1]
        assert Records.paged(store.db, OPEN)["received"].tolist() == [2]
        store.clear()
        for (table,) in store.db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            assert store.db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    assert Store.of_run(state.store.file) is None


def test_usual_intervals_are_not_kept_as_silences(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First ones are kept, until it is known what is usual; then the longest that are not."""
    monkeypatch.setattr(records, "ADDITIONS", 0)
    drawn = random.Random(3)

    def silences() -> list[int]:
        kept = Records.read(state.store.db, SILENCES)
        return sorted((kept["until"] - kept["since"]).tolist())

    at, seq, counts = 0, 0, []
    for batch, many in enumerate((50, 30)):
        packs = [Pack("a", 1, seq + n, at + n * 10_000 + drawn.randrange(5_000))
                 for n in range(many)]  # fmt: skip
        assert included(state, packs, batch) == set()
        counts.append(len(silences()))
        seq, at = seq + many, at + many * 10_000
    assert counts == [49, 49]  # of the 30, none
    monkeypatch.setattr(arrivals, "_SILENCES", 10)
    at = packs[-1].at
    for n in range(12):
        at += 40_000 + 1000 * n
        included(state, [Pack("a", 1, seq + n, at)], 2 + n)
    lasting = [40_000 + 1000 * n for n in range(1, 12)]
    assert silences() == lasting[-6:]


def test_a_file_of_another_version_is_refused_or_made_again(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    store = Store(file)
    included(State(store), [Pack("a", 1, 1, 1)])
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 99")
        with pytest.raises(StateError, match=r"state\.sqlite is of a later edition of flatmq"):
            Store(file)
        db.execute("PRAGMA user_version = 1")
    assert store.place() == Place("query", 0, 1)
    store.close()
    with Store(file) as again:
        assert again.place() is None
    file.unlink()
    file.mkdir()
    with pytest.raises(StateError, match=r"state\.sqlite: unable to open"):
        Store(file)


def test_a_full_disk_changes_nothing_and_ends(state: State) -> None:
    included(state, [Pack("a", 1, 1, 1)], 0)
    many = [Pack(f"d{n}", 1, 1, n) for n in range(2000)]
    state.store.db.execute("PRAGMA max_page_count = 20")
    with pytest.raises(OSError, match=r"No space left on device.*one\.sqlite"):
        included(state, many, 1)
    assert state.store.place() == Place("query", 0, 1)
    state.store.db.execute("PRAGMA max_page_count = 100000")
    assert included(state, [*many, Pack("a", 1, 1, 9999)], 1) == {2000}


def test_tables_are_refreshed_while_the_queries_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh that takes long holds up nobody. What it raises is raised by the next look."""
    begun, let = threading.Semaphore(0), threading.Semaphore(0)

    def refresh(self: Snapshots) -> float:
        begun.release()
        assert let.acquire(timeout=60)
        raise StateError("no disk")

    monkeypatch.setattr(Snapshots, "refresh", refresh)
    known = Known(tmp_path / "s.sqlite", str(tmp_path), 0.0)
    try:
        known.look()
        assert begun.acquire(timeout=60)
        known.look()
        known.look()
        assert not begun.acquire(blocking=False)
    finally:
        let.release()
        known.close()
    with pytest.raises(StateError, match="no disk"):
        known.look()


def test_the_newest_status_of_a_batch_counts_whatever_task_has_it(tmp_path: Path) -> None:
    """A task may have a day that is before that of another one."""
    day, none = 86_400_000_000, KEYS.empty_table()
    with Store(tmp_path / "s.sqlite") as store:
        state = State(store)
        parts = [
            Taken(
                none, {}, came(np.empty(0, np.int64)), [], [Status("a", f"of day {n}", n * day, n)]
            )
            for n in (1, 5, 2)
        ]
        state.commit(Batch(state, parts).marked, Place("q", 0, None))
        assert store.db.execute("SELECT status FROM devices").fetchall() == [("of day 5",)]


BEGIN = 1_772_366_400_000_000


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep few steps, so that all widths are pruned."""
    monkeypatch.setattr(history, "STEPS", {SECOND: 40, MINUTE: 60, HOUR: 90, DAY: 400})
    monkeypatch.setattr(history, "DEVICE_STEPS", {HOUR: 12, DAY: 20, MONTH: 12})
    monkeypatch.setattr(records, "ADDITIONS", 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(5) if sizes.whole() else [4])
def test_any_stretch_adds_up(tmp_path: Path, seed: int) -> None:
    """Also if some come late, by days, and if a clock goes ahead by years for a while."""
    drawn = random.Random(seed)
    every: list[tuple[int, int]] = []
    now = BEGIN
    with Store(tmp_path / "s.sqlite") as kept:
        state = State(kept)
        for batch in range(40):
            packs = []
            for _ in range(drawn.randrange(1, 40)):
                now += round(drawn.choice([0.1, 1.0, 70.0, 4000.0, 90_000.0]) * SECOND)
                late = drawn.choice([0, 0, 0, 3 * HOUR, 30 * DAY])
                packs.append((now - late, drawn.randrange(3)))
            if seed == 4 and batch == 20:
                packs.append((now + 3000 * DAY, 0))
            numbers = enumerate(packs, len(every))
            included(state, [Pack("abc"[of], 1, n, at) for n, (at, of) in numbers], batch)
            every += packs
        ends = min(at for at, _ in every), max(at for at, _ in every)
        with kept.reading() as db:
            periods = Periods(db)
            assert periods.ends() == ends
            for _ in range(60):
                a, b = sorted(drawn.choice(every)[0] for _ in range(2))
                low, high = periods.steps.rounded(a, b + 1)
                assert low <= a
                assert high > b
                inside = [device for at, device in every if low <= at < high]
                for widest in (SECOND, MINUTE, HOUR, DAY):
                    found = periods.found(periods.steps.pieces(low, high, widest))
                    assert (found.messages.sum(), found.packs.sum()) == (len(inside),) * 2
                    assert found.delays["n"].sum() == len(inside)
                    heard = set(np.concatenate(found.devices).tolist())
                    assert len(heard) == len(set(inside))
                (low, high), pieces = periods.of_devices(low, high)
                inside = [device for at, device in every if low <= at < high]
                sums = periods.devices(pieces, True)
                assert sums["received"].sum() == len(inside)
                assert sums.lists["delays"][1]["n"].sum() == len(inside)
                ends_of = [at for at, _ in every if low <= at < high]
                assert (sums["first"].min(), sums["heard"].max()) == (min(ends_of), max(ends_of))
            rows = dict(db.execute("SELECT width, count(*) FROM steps GROUP BY width"))
            additions = "SELECT count(*) FROM device_steps GROUP BY width, at, page"
            assert 1 < max(count for (count,) in db.execute(additions)) <= records.ADDITIONS
    assert all(rows[width] <= kept for width, kept in history.STEPS.items())


def test_a_year_of_a_device_is_few_steps(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite") as kept:
        state = State(kept)
        for day in range(400):
            included(state, [Pack("a", 1, day, BEGIN + day * DAY)], day)
        with kept.reading() as db:
            periods = Periods(db)
            low, high = BEGIN // DAY * DAY, (BEGIN // DAY + 365) * DAY
            _, pieces = periods.of_devices(low, high)
            assert sum((piece.end - piece.begin) // piece.width for piece in pieces) < 80
            assert periods.devices(pieces, True)["received"].tolist() == [365]


def test_a_boot_that_is_heard_late_changes_what_the_next_one_lost(tmp_path: Path) -> None:
    """Two numbers were missing before anybody was known to listen."""
    with Store(tmp_path / "s.sqlite") as kept:
        state = State(kept)
        included(state, [Pack("a", 2, 3, BEGIN)], 0)
        included(state, [Pack("a", 1, 1, BEGIN + HOUR), Pack("b", 1, 1, BEGIN + HOUR)], 1)
        periods = Periods(kept.db)
        [heard] = periods.found([Piece(DAY, BEGIN // DAY * DAY, BEGIN + DAY)]).devices
        assert heard.tolist() == [1, 2]
        _, pieces = periods.of_devices(BEGIN, BEGIN + DAY)
        sums = periods.devices(pieces, True)
        assert sums["lost"].tolist() == [2, 0]


def test_sets_of_devices() -> None:
    for devices in ([], [1], [1, 2, 3], [5, 900_000], [*range(1, 2000)]):
        kept = history.packed_set(np.array(devices, np.int64))
        assert history.unpacked_set(kept).tolist() == devices
        assert len(kept) <= 1 + min(4 * len(devices), max(devices, default=0) // 8 + 1)


def test_hostile_reasons_are_bounded(tmp_path: Path) -> None:
    """However many kinds of dead letters there are, few are kept."""
    with Store(tmp_path / "s.sqlite") as kept:
        state = State(kept)
        for batch in range(4):
            dead = [
                Dead(f"kind {n}", f"reason {n}", "t", BEGIN + n, n)
                for n in range(batch * 400, batch * 400 + 500)
            ]
            included(state, [Pack("a", 1, batch, BEGIN + batch)], batch, dead)
        execute = kept.db.execute
        assert execute("SELECT sum(messages), count(*) FROM dead").fetchone() == (2000, 101)
        assert execute(
            "SELECT count(*) FROM dead_examples WHERE kind = ?", (history.OTHERS,)
        ).fetchone() == (history.EXAMPLES,)
