"""Health: every fault that was put in is found exactly.

The faults are losses, copies, packs out of order or late, restarts and silences.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from flatmq_tools.pipeline.jobs import health
from pipeline.messages import Message, at, frame, reading

INTERVAL = 10  # s between two readings
SILENCE = 5000
SILENT_AFTER = 2000
SENT, LOST, TWICE, HELD = "sent", "lost", "twice", "held"


@dataclass
class Boot:
    """The faults of a boot, and by that what is true of it."""

    boot: int
    arrivals: list[tuple[int, float, float]] = field(default_factory=list)
    """seq, delay, when: in the order of arrival."""
    lost: int = 0
    unheard: int = 0
    duplicates: int = 0
    reordered: int = 0
    reboots: int = 0


@dataclass
class Board:
    """The history of a board."""

    name: str
    boots: list[Boot] = field(default_factory=list)
    silences: int = 0
    first: float = 0.0
    last: float = 0.0


class Maker:
    """Makes the history of a board from what hypothesis draws."""

    def __init__(self, name: str) -> None:
        self.board = Board(name)
        self.now = 0.0

    def boot(
        self, boot: int, steps: int, fates: list[str], delays: list[int], silent: bool
    ) -> None:
        made = Boot(boot, reboots=steps)
        copies: list[tuple[int, float, float]] = []
        held: tuple[int, float, float] | None = None
        head = True
        for seq, (fate, delay) in enumerate(zip(fates, delays, strict=True), 1):
            self.now += INTERVAL
            heard = made.arrivals or self.board.boots
            if silent and heard and seq == len(fates):
                self.now += SILENCE
                self.board.silences += 1
            arrival = (seq, float(delay), self.now)
            if fate == LOST:
                # Before anybody heard the board at all, it looks the same as not listening.
                if head and not self.board.boots:
                    made.unheard += 1
                else:
                    made.lost += 1
                continue
            head = False
            if fate == HELD and held is None and seq < len(fates) and fates[seq] == SENT:
                held = arrival
                continue
            made.arrivals.append(arrival)
            if held:
                made.arrivals.append((held[0], held[1], self.now + 1))
                made.reordered += 1
                held = None
            if fate == TWICE:
                copies.append(arrival)
        for n, (seq, delay, _) in enumerate(copies, 1):
            made.arrivals.append((seq, delay + 5, self.now + 1 + n / 10))
            made.duplicates += 1
        self.board.boots.append(made)

    def messages(self) -> list[Message]:
        return [
            reading(self.board.name, made.boot, seq, when + delay / 1000 + 0.25, time=when // 1)
            for made in self.board.boots
            for seq, delay, when in made.arrivals
        ]


fates = st.lists(
    st.sampled_from([SENT, SENT, SENT, SENT, LOST, TWICE, HELD]), min_size=1, max_size=12
).map(lambda drawn: [*drawn, SENT])  # what is lost after the last that came cannot be known


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, list[str], list[int], bool]]:
    """For each boot: starts since the one before, fates, delays in ms, a silence at its end."""
    boots = []
    for _ in range(draw(st.integers(1, 4))):
        of_boot = draw(fates)
        delays = draw(
            st.lists(
                st.integers(0, 4) | st.just(700), min_size=len(of_boot), max_size=len(of_boot)
            )
        )
        boots.append((draw(st.integers(1, 3)), of_boot, delays, draw(st.booleans())))
    return boots


@pytest.fixture(scope="module")
def boards() -> list[Maker]:
    """Many boards, for one question to Spark: each example is a board."""
    made: list[Maker] = []

    @settings(max_examples=120)
    @given(histories())
    def take(drawn: list[tuple[int, list[str], list[int], bool]]) -> None:
        maker = Maker(f"board-{len(made)}")
        boot = 40
        for n, (steps, of_boot, delays, silent) in enumerate(drawn):
            boot += steps
            maker.boot(boot, steps if n else 0, of_boot, delays, silent)
        made.append(maker)

    take()
    return made


OTHERS = [
    # Of an older boot, after the newer began. Then flash that was erased.
    reading("flash", 3, 1, 0), reading("flash", 6, 1, 20), reading("flash", 3, 2, 21),
    reading("flash", 700_000, 2, 40), reading("flash", 700_000, 2, 41),
    reading("no-clock", 1, 1, 5), reading("ahead", 1, 1, 5, time=9),
    reading("torn", 1, 1, 1), reading("torn", 1, 3, 3),
    reading("torn", 1, 2, 2)._replace(payload=b'[{"bn":"torn/","n":"boot","v":1},{"n":"seq"'),
]  # fmt: skip


class Tables(NamedTuple):
    """The health tables of all boards."""

    boots: dict[tuple[str, int], Row]
    devices: dict[str, Row]
    gaps: list[Row]
    end: float


@pytest.fixture(scope="module")
def tables(spark: SparkSession, boards: list[Maker]) -> Tables:
    messages = [message for maker in boards for message in maker.messages()]
    end = max(message.at for message in messages)
    # Boards arrive among each other, each in its own order.
    table = frame(spark, sorted([*messages, *OTHERS], key=lambda message: message.at)).persist()
    with health.Health(table, silent_after=SILENT_AFTER, now=at(end)) as found:
        return Tables(
            {(row.device, row.boot): row for row in found.boots().collect()},
            {row.device: row for row in found.devices().collect()},
            found.gaps().collect(),
            end,
        )


def nearest_rank(values: list[float], part: float) -> float:
    return sorted(values)[math.ceil(part * len(values) - 1e-9) - 1]


def test_boots_are_as_they_were_made(tables: Tables, boards: list[Maker]) -> None:
    others = 3 + 1 + 1 + 1
    assert len(tables.boots) == sum(len(maker.board.boots) for maker in boards) + others
    for maker in boards:
        for made in maker.board.boots:
            row = tables.boots[maker.board.name, made.boot]
            told = (row.lost, row.unheard, row.duplicates, row.reordered, row.reboots)
            expected = (made.lost, made.unheard, made.duplicates, made.reordered, made.reboots)
            assert told == expected, made
            assert row.received == len(made.arrivals) - made.duplicates
            first = {seq: (delay, when) for seq, delay, when in reversed(made.arrivals)}
            delays = [round((when % 1) * 1000) + delay + 250 for delay, when in first.values()]
            for name, part in (("delay_p50", 0.5), ("delay_p95", 0.95), ("delay_p99", 0.99)):
                assert row[name] == pytest.approx(nearest_rank(delays, part)), (name, made)


def test_devices_are_the_sums_of_their_boots(tables: Tables, boards: list[Maker]) -> None:
    for maker in boards:
        row, boots = tables.devices[maker.board.name], maker.board.boots
        assert row.boots == len(boots)
        for name in ("lost", "unheard", "duplicates", "reordered", "reboots"):
            assert row[name] == sum(getattr(made, name) for made in boots), (name, maker.board)


def test_gaps_add_up_and_silences_are_found(tables: Tables, boards: list[Maker]) -> None:
    for maker in boards:
        own = [row for row in tables.gaps if row.device == maker.board.name]
        lost = sum(made.lost for made in maker.board.boots)
        assert sum(row.missing for row in own if row.kind == "lost") == lost, maker.board
        assert all(row.since <= row.until for row in own)
        last = max(message.at for message in maker.messages())
        silences = maker.board.silences + (tables.end - last > SILENT_AFTER)
        assert sum(row.kind == "silent" for row in own) == silences, maker.board
        assert tables.devices[maker.board.name].silent == (tables.end - last > SILENT_AFTER)


def test_boots_by_number_and_not_by_arrival(tables: Tables) -> None:
    """Boots are ordered by number, although packs of an older boot come later.

    Flash that was erased counts from anywhere; boots that sent nothing started all the same.
    """
    found = {boot: row for (device, boot), row in tables.boots.items() if device == "flash"}
    assert {boot: row.reboots for boot, row in found.items()} == {3: 0, 6: 3, 700_000: 1}
    assert [found[boot].lost for boot in (3, 6, 700_000)] == [0, 0, 1]
    assert found[3].reordered == 0
    assert tables.devices["flash"].reboots == 4


def test_delays_need_a_time_of_the_board(tables: Tables) -> None:
    assert tables.boots["no-clock", 1].delay_p50 is None
    assert tables.boots["ahead", 1].delay_p50 == -4000


def test_what_is_no_pack_is_lost(tables: Tables) -> None:
    row = tables.boots["torn", 1]
    assert (row.received, row.lost) == (2, 1)
    (gap,) = (row for row in tables.gaps if row.device == "torn" and row.kind == "lost")
    assert (gap.missing, gap.until - gap.since) == (1, datetime.timedelta(seconds=2))


def by_device(rows: list[Row]) -> dict[str, Row]:
    return {row.device: row for row in rows}


def test_status_and_silence(spark: SparkSession) -> None:
    """The newest status holds. Asleep is not silent; who never sent a pack is known by status."""

    def status(device: str, text: str, when: float, retain: bool = False) -> Message:
        return Message(f"dev/{device}/status", text.encode(), when, retain=retain)

    def steady(device: str, until: int) -> list[Message]:
        return [reading(device, 1, n + 1, n * 10.0) for n in range(until // 10 + 1)]

    messages = [
        status("fine", "offline", 0, retain=True), status("fine", "online", 1),
        *steady("fine", 200),
        status("stuck", "online", 1), *steady("stuck", 160),
        status("dead", "online", 1), *steady("dead", 100), status("dead", "offline", 115),
        status("sleeper", "online", 1), *steady("sleeper", 50), status("sleeper", "asleep", 51),
        status("mute", "online", 3, retain=True), status("gone", "", 4),
        *steady("untold", 200), reading("once", 5, 1, 190),
    ]  # fmt: skip
    table = frame(spark, sorted(messages, key=lambda message: message.at)).persist()
    found = by_device(health.devices(table).collect())
    assert {name: (row.status, row.silent) for name, row in found.items()} == {
        "fine": ("online", False),
        "stuck": ("online", True),  # 40 s, and it sent every 10
        "dead": ("offline", True),
        "sleeper": ("asleep", False),
        "mute": ("online", False),
        "gone": (None, False),
        "untold": (None, False),
        "once": (None, False),
    }
    assert (found["stuck"].silent_s, found["stuck"].usual_s) == (40, 10)
    assert (found["mute"].received, found["mute"].silent_s, found["mute"].heard) == (0, None, None)
    assert found["dead"].status_since == at(115).astimezone().replace(tzinfo=None)


def test_a_stream_has_no_health(spark: SparkSession, tmp_path: object) -> None:
    stream = spark.readStream.schema(frame(spark, []).schema).parquet(str(tmp_path))
    with pytest.raises(health.HealthError, match="foreachBatch"):
        health.health(stream)
