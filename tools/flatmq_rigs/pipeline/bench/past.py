"""A past that nobody waited for: what a fleet of boards would have sent in so many days.

Boards publish once a minute. Each restarts once a week, loses a reading in a thousand, and sends
one in a thousand twice. The table raw is written directly, a batch for each day, and the state of
a run is filled through its own interface, day by day.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.jobs.columns import MESSAGE
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.history import SECOND, Arrivals, came
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.tables import BY_DAY

Ints = NDArray[np.int64]

QUERY = "past"
"""The query of the batches, where it is not given."""
STATE = "state/measurements.sqlite"
MINUTES = 1440
"""Of a day."""
_WEEK = 7 * MINUTES
_RARE = 1000  # one reading in so many is lost, and one comes twice
_LOG = "past"  # whose commits they are
SCHEMA = pa.schema([log.SCHEMA.field(name) for name in MESSAGE])


class Fleet:
    """Boards from a moment on.

    devices  how many
    begin    microseconds since 1970, at the begin of a day
    seed     of what is lost, late and sent twice
    """

    def __init__(self, devices: int, begin: int, seed: int = 1) -> None:
        self.devices = devices
        self.begin = begin
        self._seed = seed
        self.names = [f"board-{n:04d}" for n in range(devices)]
        # A board has a second of its own in which it publishes, and a minute in which it restarts.
        self._second = np.arange(devices, dtype=np.int64) * 60 * SECOND // devices
        self._restart = np.arange(devices, dtype=np.int64) * _WEEK // devices

    def arrivals(self, first: int, minutes: int) -> Arrivals:
        """Return the packs of minutes from `first` on, counted from the begin, in their order.

        The row of each is its offset. The same packs are lost, late and sent twice for the same
        number of minutes.
        """
        drawn = np.random.default_rng(self._seed)
        minute, device = (
            each.reshape(-1)
            for each in np.meshgrid(
                np.arange(first, first + minutes), np.arange(self.devices), indexing="ij"
            )
        )  # fmt: skip
        since = minute + _WEEK - self._restart[device]
        boot, seq = 1 + since // _WEEK, 1 + since % _WEEK
        fate = drawn.integers(0, _RARE, len(minute))
        twice = fate == 1
        times = np.where(fate == 0, 0, 1 + twice)
        minute, device, boot, seq = (
            np.repeat(each, times) for each in (minute, device, boot, seq)
        )
        measured = self.begin + minute * 60 * SECOND + self._second[device]
        delay = (drawn.lognormal(11, 1, len(minute))).astype(np.int64)  # around 60 ms
        at = measured // SECOND * SECOND + delay
        order = np.argsort(at, kind="stable")
        row = first * self.devices * 2 + np.arange(len(order))
        return Arrivals(
            row, device[order], self.names, boot[order], seq[order], at[order], row,
            delay[order], *(np.full(len(order), mark) for mark in (True, False, False)),
        )  # fmt: skip

    def messages(self, packs: Arrivals) -> pa.Table:
        """Return packs as messages."""
        names = pa.array(self.names).take(pa.array(packs.device))
        measured = (packs.at - packs.delay) // SECOND
        value = pa.array(packs.seq % 1000 + 2000).cast(pa.string())
        pieces: list[pa.Array | str] = [
            '[{"bn":"', names, '/","n":"boot","v":', _text(packs.boot), ',"bt":',
            _text(measured), '},{"n":"seq","v":', _text(packs.seq),
            '},{"n":"chip/temp","u":"Cel","v":', pc.utf8_slice_codeunits(value, 0, 2), ".",
            pc.utf8_slice_codeunits(value, 2, 4), "}]",
        ]  # fmt: skip
        payload = pc.binary_join_element_wise(*pieces, "").cast(pa.binary())
        count = len(packs.row)
        return pa.table(
            [
                pc.binary_join_element_wise("dev/", names, "/telemetry", ""), payload,
                pa.array(packs.at).cast(pa.timestamp("us", "UTC")),
                pa.array(np.ones(count, np.int32)), pa.array(np.zeros(count, np.bool_)),
                pa.array(np.zeros(count, np.bool_)), pa.array(packs.row),
            ],
            schema=SCHEMA,
        )  # fmt: skip

    def moved(self, messages: pa.Table, packs: Arrivals) -> pa.Table:
        """Return the messages of a day with the times and offsets of another one.

        The payloads stay, because making them takes longest.
        """
        at = pa.array(packs.at).cast(pa.timestamp("us", "UTC"))
        moved = messages.set_column(2, SCHEMA.field("timestamp"), at)
        return moved.set_column(6, SCHEMA.field("offset"), pa.array(packs.row))


def _text(numbers: Ints) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def write(messages: pa.Table, out: Path, number: int) -> None:
    """Add messages to the table raw, as the commit of an ingest with that number."""
    raw = Delta(out / "raw", by_day=BY_DAY["raw"])
    last = raw.last(_LOG)
    if last is None or number > last:
        raw.add([messages], messages.schema, _LOG, number)


def make(
    fleet: Fleet, days: int, folder: Path, show: Callable[[int], None] = lambda day: None
) -> None:  # fmt: skip
    """Write a number of days from the begin of the fleet on into FOLDER/raw and FOLDER/state.

    They are the batches from 0. Boots are closed as a run does it. Days that are there are left
    as they are. `show` takes the number of days that are done.
    """
    state = folder / STATE
    snapshots = Snapshots(state, str(folder))
    with Store(state) as store:
        known = State(store)
        place = store.place()
        messages = fleet.messages(fleet.arrivals(0, MINUTES))
        for day in range(0 if place is None else (place.batch or 0) + 1, days):
            packs = fleet.arrivals(day * MINUTES, MINUTES)
            write(fleet.moved(messages, packs), folder, day)
            include(known, packs, Place(QUERY, day, None))
            snapshots.refresh()
            show(day + 1)


def include(state: State, packs: Arrivals, place: Place) -> None:
    """Include packs in a state, as a batch."""
    state.commit(state.mark(packs, came=came(packs.at)), place)
