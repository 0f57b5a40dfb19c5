"""The command `flatmq pipeline report`: a page, and its numbers in the terminal.

The figures come from the state of a run, or from the table raw.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from pathlib import Path

from ...plain import PlainConsole
from . import from_state, needs, page, terminal, values
from .figures import Figures
from .period import UTC, Period

PAGE = "report.html"
_EVERYTHING = Period()


def main(
    out: Path, tables: Path, identity: str = "topic", mapping: Sequence[str] = (),
    period: Period = _EVERYTHING, is_of_raw: bool = False,
) -> int:  # fmt: skip
    """Write OUT/report.html, or OUT where that is a .html.
    The state of a run is asked if there is one, unless `is_of_raw`; without it the table raw is
    read, with `identity` and `mapping`. ReportError where there is nothing to report of."""
    console = PlainConsole()
    with console.status("reading the state ...") as status, contextlib.ExitStack() as stack:
        figures = None if is_of_raw else from_state.of_state(tables, period)
        if figures is None:
            from . import from_raw  # what Spark's tasks use takes half a second to import

            status.update("reading the table raw ...")
            made = from_raw.figures(tables, identity, mapping, period)
            figures, tables = stack.enter_context(made)
        status.update("reading measured values ...")
        first = [device.name for device in needs.worst(figures)]
        longest = values.DAY if period.since is None else figures.span
        figures.measured = values.read(tables, figures, first, longest)
        status.update("writing the page ...")
        file = written(figures, out, datetime.datetime.now(UTC) if period.until is None else None)
    terminal.show(figures, console)
    console.print(str(file), soft_wrap=True)
    return 0


def written(figures: Figures, out: Path, now: datetime.datetime | None = None) -> Path:
    """Write the page, and return its path; `now` is as for `page.page`."""
    file = out if out.suffix == ".html" else out / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(page.page(figures, now).encode(errors="replace"))
    return file
