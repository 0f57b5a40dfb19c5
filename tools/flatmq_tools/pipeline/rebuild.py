"""Have tables made again from what they are made of: `flatmq pipeline rebuild`."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyarrow.fs import FileSelector
from rich.console import Console

from . import delta, delta_files, editions, tables
from .in_use import InUse

PARTS = {
    "measurements": ("measurements", "out_of_time", "dead_letters"), "windows": ("windows",),
    "health": (),
}  # fmt: skip
"""By job, the tables that it adds to."""
_AFTER = {"measurements": ("windows",)}
"""The jobs that read them, and start again, too."""


def main(name: str, out: str, state: Path) -> int:
    """Remove the tables of a job, and what it knows, so that the next run makes them again.

    out    the folder or URL of the tables
    state  the folder of the checkpoints

    Raises InUseError, EditionError.
    """
    editions.check(state)
    with InUse(state):
        for job in (name, *_AFTER.get(name, ())):
            # First the tables: without their checkpoint, a query would add all rows to them again.
            for table in PARTS[job]:
                _remove(tables.of(out, table))
            shutil.rmtree(state / "checkpoints" / job, ignore_errors=True)
            shutil.rmtree(state / "state" / job, ignore_errors=True)
            # The state of packs is that of the job that reads raw, whatever its name.
            for file in (state / "state").glob("*.sqlite*") if job != "windows" else ():
                file.unlink()
    Console(stderr=True).print(f"the next run makes {name} again", highlight=False)
    return 0


def _remove(table: str) -> None:
    if "://" not in table:
        shutil.rmtree(table, ignore_errors=True)
    elif delta.is_there(table):
        files = delta_files.store(table)
        # The log last: what is left after a kill is still a table.
        every = files.get_file_info(FileSelector("", recursive=True))
        for path in sorted((each.path for each in every), key=lambda path: "_delta_log" in path):
            files.delete_file(path)
