"""Remove the rows of a device from a Parquet table by days, while others read it.

A day is built again beside as a hidden folder: hard links of the batches without the device, and
the other batches without its rows. Both folders are exchanged in one step. So a reader finds each
other row once, before and after, and a kill leaves a hidden folder, which the next call removes.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from . import durable
from .exchange import exchange
from .forget_rows import Rows, write_without
from .layout import (
    DAY,
    MOVING,
    PREFIX,
    RECORDS,
    Piece,
    Table,
    index_name,
    index_text,
    is_index,
    number,
    record_text,
)  # fmt: skip
from .merge import HIDDEN, Batches, batches_of

_DRAFTS = f".{PREFIX}"


def is_settled(folder: Path) -> bool:
    """Return whether no batch of a table waits to be moved into its days."""
    return not any(path.name.startswith((MOVING, PREFIX)) for path in folder.iterdir())


def remove(folder: Path, rows: Rows) -> int:
    """Remove the rows from the table in `folder`, and return their number.

    Batches keep their numbers and their files, which may become empty.
    """
    for path in folder.iterdir():
        if path.name.startswith((HIDDEN, _DRAFTS)):  # of a kill: no reader has seen them
            shutil.rmtree(path)
    gone = 0
    for day in sorted(path for path in folder.iterdir() if path.name.startswith(DAY)):
        gone += _day(folder, day, rows)
    _record(folder)
    return gone


def _day(folder: Path, day: Path, rows: Rows) -> int:
    marks: dict[Path, dict[str, NDArray[np.bool_]]] = {}
    for batch in sorted(path for path in day.iterdir() if number(path.name) is not None):
        found = {file.name: rows.of_file(file) for file in _files(batch)}
        if any(mask.any() for mask in found.values()):
            marks[batch] = found
    if not marks:
        return 0
    hidden = folder / f"{HIDDEN}{uuid.uuid4().hex}"
    hidden.mkdir()
    try:
        for path in day.iterdir():
            target = hidden / path.name
            if not path.is_dir():
                os.link(path, target)
            elif path in marks:
                _batch(path, target, marks[path])
            else:
                target.mkdir()
                for file in path.iterdir():
                    os.link(file, target / file.name)
        durable.tree(hidden)
        exchange(hidden, day)
        durable.path(folder)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return sum(int(mask.sum()) for found in marks.values() for mask in found.values())


def _batch(old: Path, new: Path, marks: dict[str, NDArray[np.bool_]]) -> None:
    """Write the folder of a batch, or of several that were merged, without the marked rows.

    Its files get other names, so that a reader does not take a new file for the old one.
    """
    new.mkdir()
    mark = uuid.uuid4().hex
    names = {name: f"{name.removesuffix('.parquet')}-{mark}.parquet" for name in marks}
    index = next((path for path in old.iterdir() if is_index(path.name)), None)
    if index is not None:
        names = dict.fromkeys(names, f"merged-{mark}.parquet")
        ((name, mask),) = marks.items()
        text = index_text(names[name], _counted(batches_of(old), mask))
        (new / index_name(mark)).write_text(text)
    for name, mask in marks.items():
        write_without(old / name, new / names[name], mask)


def _counted(batches: Batches, gone: NDArray[np.bool_]) -> Batches:
    """Return the rows that stay of each batch in a merged file, and of each of its files."""
    found: Batches = []
    at = 0
    for batch, parts in batches:
        kept = []
        for rows in parts:
            kept.append(rows - int(gone[at : at + rows].sum()))
            at += rows
        found.append((batch, kept))
    return found


def _record(folder: Path) -> None:
    """Correct the records of the newest batches: count their rows again where they lie."""
    table = Table(str(folder))
    for batch in table.recorded():
        known = table.record(batch)
        assert known is not None
        found = table.of_days(batch, batch + 1, known.days).get(batch, [])
        counts = dict.fromkeys(known.days, 0)
        for piece in found:
            counts[piece.day] += _rows(piece)
        file = folder / RECORDS / f"{batch}.json"
        if json.loads(file.read_text()) == json.loads(record_text(counts)):
            continue
        draft = folder / RECORDS / f".{batch}"
        draft.write_text(record_text(counts))
        durable.path(draft)
        draft.rename(file)
        durable.entry(file)


def _rows(piece: Piece) -> int:
    return pq.read_metadata(piece.path).num_rows if piece.rows is None else piece.rows


def _files(batch: Path) -> list[Path]:
    return sorted(path for path in batch.iterdir() if path.suffix == ".parquet")
