"""`flatmq pipeline report`: from tables to a page, its pictures, and numbers in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ..java import JavaError
from ..jobs import measurements
from ..mapping.files import MappingError
from ..session import SessionError, session
from . import figures as asked
from . import page, pictures, terminal
from .figures import Figures, ReportError

ERRORS = (ReportError, JavaError, MappingError, SessionError)
PAGE = "report.html"


def main(
    out: Path, tables: Path, master: str | None, conf: Mapping[str, str] | None = None,
    identity: str = "topic", mapping: Sequence[str] = (),
) -> int:  # fmt: skip
    """Write OUT/report.html and OUT/*.png, or OUT and its pictures beside where OUT is a .html.
    ReportError where there is nothing to report of."""
    console = Console()
    found = measurements.mapped(mapping, identity)
    with console.status("starting Spark ...") as status:
        # Before Spark is started, which takes seconds.
        if not (tables / asked.RAW).is_dir():
            raise ReportError(f"{tables} has no table {asked.RAW}: `flatmq pipeline run` makes it")
        spark = session(master, "flatmq pipeline report", **(conf or {}))
        try:
            status.update("asking the tables ...")
            figures = asked.of_tables(spark, tables, identity, found)
        finally:
            spark.stop()
        status.update("drawing ...")
        file = written(figures, out)
    terminal.show(figures, console)
    console.print(f"{file} and its pictures beside it", markup=False, highlight=False)
    return 0


def written(figures: Figures, out: Path) -> Path:
    """Write page and pictures, and return the page's path."""
    file = out if out.suffix == ".html" else out / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    made = pictures.pictures(figures)
    for picture in made:
        (file.parent / f"{picture.name}.png").write_bytes(picture.png)
    file.write_text(page.page(figures, made), encoding="utf-8")
    return file
