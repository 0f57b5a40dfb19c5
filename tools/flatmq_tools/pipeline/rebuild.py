"""Have tables made again from what they are made of: `flatmq pipeline rebuild`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from ..plain import PlainConsole
from . import delta_files, tables
from .in_use import lock


def main(name: str, out: str, state: Path) -> int:
    """Remove the tables of a job, and what it knows, so that the next run makes them again.

    out    the folder or URL of the tables
    state  the folder of the checkpoints

    Raises InUseError, TablesError.
    """
    if not tables.is_run(state):
        raise tables.TablesError(f"OUT must be the folder of a run, not {state}: it has no table")
    tables.check(state)
    with lock(state):
        made = tables.MADE.get(name, ())
        after = [job for table in made for job in tables.FOLLOWERS.get(table, ())]
        if name != "windows":
            # They are of the state, which the next batch makes again of raw.
            for table in tables.SNAPSHOTS:
                _remove(tables.of(out, table))
        for job in (name, *after):
            # First the tables, surely: without its checkpoint a query adds all rows to them again.
            for table in tables.MADE.get(job, ()):
                _remove(tables.of(out, table))
            os.sync()
            shutil.rmtree(state / "checkpoints" / job, ignore_errors=True)
            # The state of packs is that of the job that reads raw, whatever its name.
            for file in (state / "state").glob("windows.db*" if job == "windows" else "*.sqlite*"):
                file.unlink()
    PlainConsole(stderr=True).print(f"the next run makes {name} again")
    return 0


def _remove(table: str) -> None:
    if "://" not in table and Path(table).exists():
        shutil.rmtree(table)
    elif DeltaTable.is_deltatable(table):
        files = delta_files.store(table)
        # The log last: what is left after a kill is still a table.
        every = files.get_file_info(FileSelector("", recursive=True))
        for path in sorted((each.path for each in every), key=lambda path: "_delta_log" in path):
            files.delete_file(path)
