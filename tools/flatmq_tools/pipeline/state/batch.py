"""A batch of a query whose tasks are done: which of its packs came before, and what to report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..delta import Delta
from ..delta_files import Added
from ..jobs.limits import Bounds
from ..jobs.parsing import Reads
from . import taking
from .arrivals import Marked, State
from .groups import Bools
from .history import CAME, Arrivals
from .store import Place
from .taking import Fix, Taken

_ROW = "row"
WITHOUT_VALUE = (
    "values are null in measurements: they are numbers that no column can hold, such as NaN or "
    "1e400, or bytes that a mapping cannot decode"
)
OUT_OF_TIME = (
    "readings have a time too far from their arrival: they are in the table out_of_time, and not "
    "in measurements; --ahead and --behind set how far is too far"
)
UNSURE = (
    "packs may be copies and are in measurements: their boots lost numbers in more than a "
    "thousand places, or number their packs at random"
)


class Batch:
    """A batch whose tasks are done, marked against the state."""

    def __init__(self, state: State, parts: list[Taken]) -> None:
        self.parts = parts
        keys = pa.concat_tables([taking.KEYS.empty_table(), *(part.keys for part in parts)])
        self._keys = keys.append_column(_ROW, pa.array(np.arange(len(keys))))
        counting = pc.and_(keys["boot"].is_null(), keys["seq"].is_valid())
        counted, counters = state.numbered(self._keys.filter(counting))
        numbered = self._keys["seq"].is_valid()
        known = self._keys.filter(pc.and_(numbered, keys["boot"].is_valid()))
        arrivals = Arrivals.of(pa.concat_tables([known, counted]))
        others = Arrivals.of(self._keys.filter(pc.invert(numbered)))
        came = np.concatenate([np.empty(0, CAME), *(part.came for part in parts)])
        dead = [one for part in parts for one in part.dead]
        self.messages = int(came["messages"].sum())
        now = int(came["last"].max()) if len(came) else None
        statuses = [status for part in parts for status in part.statuses]
        statuses.sort(key=lambda status: (status.at, status.offset))
        newest = {status.device: status for status in statuses}
        self.marked: Marked = state.mark(arrivals, [*newest.values()], now, others, came, dead)
        self.marked.counters = counters
        self._copies: Bools = np.zeros(len(keys), np.bool_)
        self._copies[self.marked.copies] = True
        boots = keys["boot"].combine_chunks()
        if len(counted):
            row = pc.index_in(self._keys[_ROW], counted[_ROW])
            boots = pc.coalesce(boots, counted["boot"].take(row))
        self._boots: pa.ChunkedArray = pa.chunked_array([boots])

    def fixes(self) -> list[Fix]:
        """Return the files with rows that came before, or that lack their boot."""
        found = []
        begin = 0
        for part in self.parts:
            end = begin + len(part.keys)
            boots = self._boots.slice(begin, end - begin)
            found += taking.fixes(part, self._copies[begin:end], boots)
            begin = end
        return found

    def files(self, table: str, again: Mapping[str, list[Added]]) -> list[Added]:
        """Return the files of a table with the rows that are right.

        again  by the path of a file that is not right, those that were written instead
        """
        found = [file for part in self.parts for file in part.files[table]]
        return [right for file in found for right in again.get(file.path, [file])]

    def odd(self) -> list[tuple[str, int, str]]:
        """Return what people are to know: text, how often, an example."""

        def of(name: str) -> tuple[int, str]:
            counts = self._keys[name].to_numpy()[~self._copies]
            return int(counts.sum()), next(
                filter(None, (getattr(p, name) for p in self.parts)), ""
            )

        return [
            (WITHOUT_VALUE, *of("without_value")), (OUT_OF_TIME, *of("out_of_time")),
            (UNSURE, self.marked.unsure, ""),
        ]  # fmt: skip


def make(
    state: State, tables: Mapping[str, Delta], messages: pa.Table, reads: Reads, place: Place
) -> None:
    """Make tables of a batch of messages in this process, as a run does in Spark."""
    files = {name: table.writing(taking.SCHEMAS[name]) for name, table in tables.items()}
    task = taking.Task("", reads, Bounds(), files)
    batch = Batch(state, [taking.taken(task, messages.to_batches())])
    again = {fix.path: taking.fixed(files[fix.table], fix) for fix in batch.fixes()}
    for name, table in tables.items():
        added = batch.files(name, again)
        table.commit(added, taking.SCHEMAS[name], place.query, place.batch or 0)
    state.commit(batch.marked, place)
