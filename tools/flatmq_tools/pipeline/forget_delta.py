"""Remove the rows of a device from a Delta table of this machine, with its old versions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
from deltalake import DeltaTable

from . import durable
from .forget_rows import Rows

_LOG = "_delta_log"
_NOTHING = json.dumps({"commitInfo": {"operation": "FORGET"}})


def remove(folder: Path, rows: Rows) -> int:
    """Remove the rows from the table in `folder`, and return their number."""
    table = DeltaTable(str(folder))
    column = rows.column(field.name for field in table.schema().fields)
    if column is None:
        return 0
    values: set[str] = set()
    for batch in table.to_pyarrow_dataset().to_batches(columns=[column]):
        values.update(one for one in pc.unique(batch.column(0)).to_pylist() if one is not None)
    where = rows.predicate(column, values)
    return 0 if where is None else int(table.delete(where)["num_deleted_rows"])


def forget_past(folder: Path, first: int | None = None) -> None:
    """Remove the files and the log entries of all versions of a table but the newest.

    first  the version at which a query goes on; from it on, empty entries take the place of others

    Nothing may read or write the table meanwhile.
    """
    table = DeltaTable(str(folder))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table = DeltaTable(str(folder))
    table.create_checkpoint()
    log = folder / _LOG
    durable.tree(log)
    for path in log.iterdir():
        version = path.name.partition(".")[0]
        if version.isdecimal() and int(version) < table.version():
            path.unlink()
    for passed in range(table.version() if first is None else first, table.version()):
        (log / f"{passed:020d}.json").write_text(_NOTHING)
    durable.tree(log)
