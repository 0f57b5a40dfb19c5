"""The tables of a run, made of the table raw alone, for a report where no run has made them.

They are made as a run makes them, but without Spark, in a temporary folder.
"""

from __future__ import annotations

import contextlib
import datetime
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from .. import progress
from ..delta import Delta
from ..delta_files import fitting
from ..jobs.parsing import Reads, certificates, mapped
from ..mapping.births import Births
from ..state.arrivals import State
from ..state.batch import make
from ..state.store import Place, Store
from ..state.taking import MESSAGES, SCHEMAS
from ..tables import BY_DAY
from . import from_state, values
from .figures import RAW, Figures, ReportError
from .period import UTC, Period

_ROWS = 500_000  # messages at a time, about
_QUERY = "report"
_EVERYTHING = Period()


@contextlib.contextmanager
def figures(
    folder: Path, identity: str = "topic", mapping: Sequence[str] = (),
    period: Period = _EVERYTHING,
) -> Iterator[tuple[Figures, Path]]:  # fmt: skip
    """Return the figures of FOLDER/raw, and the temporary folder with the tables made of it.

    `identity` and `mapping` are as for a run. Raises ReportError, PeriodError and MappingError.
    """
    rules = mapped(mapping, identity)
    if not (folder / RAW).is_dir():
        raise ReportError(f"{folder} has no table {RAW}: `flatmq pipeline run` makes it")
    raw = values.dataset(folder / RAW)
    stretch = period.of(_newest(raw) if raw is not None and period.relative else None)
    parts = iter(()) if raw is None else _parts(raw, *stretch)
    births = Births()
    with tempfile.TemporaryDirectory(prefix="flatmq-report-") as name:
        out = Path(name)
        for kept in (progress.BEFORE, progress.NAME):
            if (folder / kept).exists():
                (out / kept).symlink_to((folder / kept).absolute())
        sinks = {table: Delta(out / table, by_day=BY_DAY[table]) for table in SCHEMAS}
        count = 0
        with Store(out / "state" / "measurements.sqlite") as store:
            state = State(store)
            for number, messages in enumerate(parts):
                sessions = None
                if rules is not None and rules.births:
                    for some in messages.to_batches():
                        births.add(certificates(some, rules))
                    sessions = births.sessions()
                reads = Reads(identity, mapping=rules, sessions=sessions)
                make(state, sinks, messages, reads, Place(_QUERY, number, None))
                count += len(messages)
        if not count:
            raise ReportError(
                f"{folder / RAW} has no messages: is it the folder that the jobs write to?"
                if stretch == (None, None)
                else f"{folder / RAW} has no messages between --since and --until"
            )
        found = from_state.of_state(out, _EVERYTHING, stretch)
        assert found is not None
        if stretch[0] is not None:
            # What was before is not known, and not unheard.
            found.devices = [device._replace(unheard=0) for device in found.devices]
        yield found, out


def _newest(raw: ds.Dataset) -> datetime.datetime | None:
    newest = [
        batch["timestamp"].cast(pa.int64()).to_numpy().max()
        for batch in raw.to_batches(columns=["timestamp"])
        if len(batch)
    ]
    return datetime.datetime.fromtimestamp(max(newest) / 1e6, UTC) if newest else None


def _parts(
    raw: ds.Dataset, since: datetime.datetime | None, until: datetime.datetime | None
) -> Iterator[pa.Table]:
    """Yield the messages of a stretch of time."""
    names = [name for name in MESSAGES.names if name in raw.schema.names]
    some: list[pa.RecordBatch] = []
    chosen = values.within(raw, since, until, "timestamp")
    for batch in raw.to_batches(columns=names, filter=chosen):
        some.append(fitting(batch, MESSAGES))
        if sum(map(len, some)) >= _ROWS:
            yield pa.Table.from_batches(some)
            some = []
    if sum(map(len, some)):
        yield pa.Table.from_batches(some)
