"""The command `flatmq pipeline report`: a page, and its numbers in the terminal.

The figures come from the state of a run, or from the table raw.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from . import from_state, needs, page, terminal, values
from .figures import RAW, Figures, ReportError
from .period import UTC, Period

PAGE = "report.html"
_EVERYTHING = Period()


def main(
    out: Path, tables: Path, master: str | None, conf: Mapping[str, str] | None = None,
    identity: str = "topic", mapping: Sequence[str] = (), period: Period = _EVERYTHING,
    from_raw: bool = False,
) -> int:  # fmt: skip
    """Write OUT/report.html, or OUT where that is a .html.
    The state of a run is asked if there is one, unless `from_raw`; `identity`, `mapping`, `master`
    and `conf` are for Spark, which reads raw if there is none. ReportError where there is nothing
    to report of."""
    console = Console()
    with console.status("reading the state ...") as status:
        figures = None if from_raw else from_state.of_state(tables, period)
        if figures is None:
            status.update("starting Spark ...")
            figures = _of_raw(tables, master, conf or {}, identity, mapping, period)
        status.update("reading measured values ...")
        first = [device.name for device in needs.worst(figures)]
        longest = values.DAY if period.since is None else figures.span
        figures.measured = values.read(tables, figures, first, longest)
        status.update("writing the page ...")
        file = written(figures, out, datetime.datetime.now(UTC) if period.until is None else None)
    terminal.show(figures, console)
    console.print(str(file), markup=False, highlight=False, soft_wrap=True)
    return 0


def _of_raw(
    tables: Path, master: str | None, conf: Mapping[str, str], identity: str,
    mapping: Sequence[str], period: Period,
) -> Figures:  # fmt: skip
    from ..jobs import measurements
    from ..session import SessionError, session
    from . import from_raw

    # Before Spark is started, which takes seconds.
    found = measurements.mapped(mapping, identity)
    if not (tables / RAW).is_dir():
        raise ReportError(f"{tables} has no table {RAW}: `flatmq pipeline run` makes it")
    try:
        spark = session(master, "flatmq pipeline report", **conf)
    except SessionError as error:
        raise ReportError(str(error)) from error
    try:
        return from_raw.of_tables(spark, tables, identity, found, period)
    finally:
        spark.stop()


def written(figures: Figures, out: Path, now: datetime.datetime | None = None) -> Path:
    """Write the page, and return its path; `now` is as for `page.page`."""
    file = out if out.suffix == ".html" else out / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(page.page(figures, now).encode(errors="replace"))
    return file
