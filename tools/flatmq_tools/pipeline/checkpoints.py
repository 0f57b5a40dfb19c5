"""The places up to which the queries of a run have read their tables, from their checkpoints."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from .tables import FOLLOWERS


def offset(checkpoint: Path | str, batch: int) -> dict[str, Any] | None:
    """Return the offset at which a batch of a query ends; None if Spark has not recorded it."""
    with contextlib.suppress(FileNotFoundError):
        text = Path(checkpoint, "offsets", str(batch)).read_text()
        return dict(json.loads(text.splitlines()[-1]))
    return None


def done(checkpoint: Path) -> dict[str, Any] | None:
    """Return the offset up to which a query has read; None if it has finished no batch.

    Only batches whose rows are written and that Spark has recorded as done count as read.
    """
    numbers = _numbers(checkpoint / "commits")
    return offset(checkpoint, numbers[-1]) if numbers else None


def mend(checkpoint: Path) -> None:
    """Remove what Spark would refuse in the folder of a query.

    That is what a full disk may have left of the first start of a query, and the newest notes if
    a power cut has torn them. They were not synced, so their batch was not written, or is known
    to be: see `durable.batch`.
    """
    if not any([*checkpoint.glob("offsets/[0-9]*"), *checkpoint.glob("commits/[0-9]*")]):
        shutil.rmtree(checkpoint, ignore_errors=True)
    last = -1
    for name in ("commits", "offsets"):
        folder = checkpoint / name
        for number in [n for n in reversed(_numbers(folder)) if n > last]:
            if _is_whole(folder / str(number)):
                last = number
                break
            for torn in (str(number), f".{number}.crc"):
                (folder / torn).unlink(missing_ok=True)


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of the notes in a folder, in order."""
    return sorted(int(p.name) for p in folder.glob("[0-9]*") if p.name.isdecimal())


def _is_whole(note: Path) -> bool:
    """Return whether a note is lines of JSON behind its version."""
    try:
        version, *lines = note.read_text().splitlines()
        return version.startswith("v") and bool([json.loads(line) for line in lines])
    except ValueError:
        return False


def readers(checkpoints: Path, table: str) -> list[dict[str, Any] | None]:
    """Return the offset of each query that reads a table, as `done` does."""
    found = [checkpoints / name for name in FOLLOWERS.get(table, ())]
    return [done(path) for path in found if path.is_dir()]
