"""The past, kept in steps that get wider, has the sums of all messages."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import sizes
from flatmq_tools.pipeline.state import history, records
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.history import DAY, HOUR, MINUTE, MONTH, SECOND, Dead
from flatmq_tools.pipeline.state.periods import Periods, Piece
from flatmq_tools.pipeline.state.store import Store
from pipeline.test_state import Pack, included

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
                low, high = periods.rounded(a, b + 1)
                assert low <= a
                assert high > b
                inside = [device for at, device in every if low <= at < high]
                for widest in (SECOND, MINUTE, HOUR, DAY):
                    found = periods.found(periods.pieces(low, high, widest))
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
        assert [sums[name].tolist() for name in ("lost", "unheard")] == [[2, 0], [0, 0]]


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
