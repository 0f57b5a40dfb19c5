"""Write the tables of a run as plain Parquet: `flatmq pipeline export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds

from ..plain import PlainConsole
from . import tables
from .delta_files import DAY


def main(out: str, target: Path, names: Sequence[str]) -> int:
    """Write each table into a new folder TARGET/NAME, in folders `day=...` if it grows.

    Raises TablesError if there is no table, or if such a folder exists.
    """
    opened = {name: tables.opened(tables.of(out, name)) for name in names}
    there = {name: table for name, table in opened.items() if table is not None}
    if not there:
        raise tables.TablesError(f"{out} has none of the tables {', '.join(names)}")
    for name in there:
        if (target / name).exists():
            raise tables.TablesError(f"{target / name} exists: name another TARGET, or remove it")
    target.mkdir(parents=True, exist_ok=True)
    console = PlainConsole()
    for name, table in there.items():
        rows = table.to_pyarrow_dataset()
        days = [DAY] if DAY in rows.schema.names else None
        ds.write_dataset(
            rows, target / name, format="parquet", partitioning=days,
            partitioning_flavor="hive" if days else None,
        )  # fmt: skip
        console.print(f"{target / name}: {rows.count_rows():,} rows", soft_wrap=True)
    return 0
