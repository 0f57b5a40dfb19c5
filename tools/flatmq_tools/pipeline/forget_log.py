"""Remove the messages of a device from the log of a receiver.

In the log an empty message, FORGOTTEN, takes the place of each: the offsets of the others stay as
they are, and `log_rows.read` passes over it.
"""

from __future__ import annotations

from pathlib import Path

from flatmq.wire import get_length

from . import durable, names
from .forget_rows import Rows
from .log import HEADER, LogError, Record, Segment, Writer, segments
from .segments import FORGOTTEN, header, records

_NOTHING = {4: bytes((FORGOTTEN, 4, 0, 0, 0, 0)), 5: bytes((FORGOTTEN, 5, 0, 0, 0, 0, 0))}


def remove(folder: Path, rows: Rows) -> int:
    """Remove the messages from the log in `folder`, and return their number.

    Raises LogError if another process has the log, or if it is damaged.
    """
    with Writer(folder):  # nobody else writes; what was torn is cut off
        return sum(_segment(segment, rows) for segment in segments(folder))


def _segment(segment: Segment, rows: Rows) -> int:
    draft = segment.path.with_name(f".{segment.path.name}")
    removed = end = 0
    with segment.path.open("rb") as old, draft.open("wb") as new:
        for record in records(old, segment.first):
            old.seek(record.at + HEADER)
            body, count = _without(old.read(record.size), record, rows)
            new.write(header(record.first, record.messages, record.time_us, body, record.version))
            new.write(body)
            removed += count
            end = record.end
    if end != segment.path.stat().st_size:
        draft.unlink()
        raise LogError(f"{segment.path}: damaged behind byte {end}")
    if removed:
        durable.path(draft)
        draft.rename(segment.path)
        durable.path(segment.path.parent)
    else:
        draft.unlink()
    return removed


def _without(body: bytes, record: Record, rows: Rows) -> tuple[bytes, int]:
    """Return the packets of a record without those of the device, and how many these were."""
    parts = []
    at = removed = 0
    while at < len(body):
        begin = at
        n = body[at + 1]
        if n < 128:
            at += 2
        else:
            n = get_length(body, at + 1, len(body))
            at += (n & 3) + 2
            n >>= 2
        topic = body[at + 2 : at + 2 + (body[at] << 8 | body[at + 1])]
        at += n
        if rows.is_topic(names.text(topic)):
            parts.append(_NOTHING[record.version])
            removed += 1
        else:
            parts.append(body[begin:at])
    return b"".join(parts), removed
