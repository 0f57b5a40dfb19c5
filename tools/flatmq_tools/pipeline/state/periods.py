"""Read what the state keeps of a stretch of time, in steps that are still kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import groups, history
from .groups import SHORT, Ints, Rows
from .records import STEPS, Records
from .values import DAY, columns

_EVER = -(1 << 62)


class Piece(NamedTuple):
    """Steps of a width from `begin` up to `end`, in microseconds since 1970."""

    width: int
    begin: int
    end: int


@dataclass
class Found:
    """The steps of some pieces, in the order of time."""

    at: Ints
    end: Ints
    messages: Ints
    packs: Ints
    dead: Ints
    first: int | None
    """When the first message came, and the last."""
    last: int | None
    devices: list[Ints]
    """Which devices were heard in each step."""
    group: Ints
    delays: Rows


class Kept(dict[int, int]):
    """By width, since when the steps of that width, and those that are wider, are all there.

    That is since ever, if none was removed. Of the steps within a wider one, all are of use or
    none.
    """

    def finest(self, at: int) -> int:
        """Return the width of the shortest steps that are kept of a moment."""
        return next(width for width in sorted(self) if self[width] <= at)

    def rounded(self, since: int, until: int) -> tuple[int, int]:
        """Return a stretch of time that begins and ends with steps that are kept."""
        below = self.finest(since)
        above = self.finest(until - 1)
        return since // below * below, -(-until // above) * above

    def pieces(self, since: int, until: int, widest: int = DAY) -> list[Piece]:
        """Return the fewest steps, no wider than `widest`, that a rounded stretch consists of."""
        if since >= until:
            return []
        for width in sorted(self, reverse=True):
            begin, end = -(-since // width) * width, until // width * width
            if width > max(widest, self.finest(since)) or begin >= end or self[width] > begin:
                continue
            return [
                *self.pieces(since, begin, width),
                Piece(width, begin, end),
                *self.pieces(end, until, width),
            ]
        raise AssertionError((since, until))


class Periods:
    """The past of a state, in a transaction that reads."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.steps = self._kept(history.STEPS, "steps")
        self._of_devices = self._kept(history.DEVICE_STEPS, "device_steps")

    def _kept(self, widths: dict[int, int], table: str) -> Kept:
        found = Kept()
        since, wider = _EVER, None
        for width in sorted(widths, reverse=True):
            (count,) = self._db.execute(
                "SELECT count(*) FROM steps WHERE width = ?", (width,)
            ).fetchone()
            (oldest,) = self._db.execute(
                f"SELECT min(at) FROM {table} WHERE width = ?", (width,)
            ).fetchone()
            if wider is not None and oldest is not None and count >= widths[width]:
                since = max(since, -(-oldest // wider) * wider)
            found[width], wider = since, width
        return found

    def ends(self) -> tuple[int, int] | None:
        """Return when the first and the last message came; None if there was none."""
        row = self._db.execute(
            "SELECT min(first), max(last) FROM steps WHERE width = ?", (DAY,)
        ).fetchone()
        return None if row[0] is None else (row[0], row[1])

    def found(self, pieces: Sequence[Piece], sets: bool = True) -> Found:
        """Return the steps of pieces; without their devices if these are not asked for."""
        names = ("at", "at + width", "messages", "packs", "dead", "first", "last", "devices",
                 "delays")  # fmt: skip
        read = [name if sets or name != "devices" else "NULL" for name in names]
        rows: list[tuple[Any, ...]] = []
        for piece in pieces:
            rows += self._db.execute(
                f"SELECT {', '.join(read)} FROM steps "
                "WHERE width = ? AND at >= ? AND at < ? ORDER BY at", piece,
            ).fetchall()  # fmt: skip
        known = columns(rows, names)
        group, short = groups.unpacked(known["delays"], SHORT)
        first = min((at for at in known["first"] if at is not None), default=None)
        last = max((at for at in known["last"] if at is not None), default=None)
        at, end, messages, packs, dead = (np.array(known[name], np.int64) for name in names[:5])
        return Found(
            at, end, messages, packs, dead, first, last,
            [history.unpacked_set(kept) for kept in known["devices"]] if sets else [],
            group, short,
        )  # fmt: skip

    # Devices

    def of_devices(self, since: int, until: int) -> tuple[tuple[int, int], list[Piece]]:
        """Return the stretch for which there are sums of devices, and its pieces.

        They are whole hours of the last days, and else whole days, or months of what is
        older than these.
        """
        stretch = self._of_devices.rounded(since, until)
        return stretch, self._of_devices.pieces(*stretch, history.MONTH)

    def devices(self, pieces: Sequence[Piece], numbered: bool) -> Records:
        """Return what packs with numbers, or without, add up to in pieces, for each device."""
        every = [*self._with_hours(pieces)]
        which = "WHERE width = ? AND at >= ? AND at < ? AND page = ?"
        pages = "SELECT DISTINCT page FROM device_steps ORDER BY page"
        sums = Records.of(STEPS, ())
        for page in self._db.execute(pages).fetchall():
            found = Records.of(STEPS, ())
            for piece in every:
                found = found.and_these(Records.read(self._db, STEPS, which, (*piece, *page)))
            found = found.take(found["numbered"] == numbered)
            sums = sums.and_these(found.summed("device"))
        return sums

    def _with_hours(self, pieces: Sequence[Piece]) -> Iterator[Piece]:
        """Yield pieces, and the hours that are not in the wider ones yet."""
        row = self._db.execute("SELECT until FROM folded").fetchone()
        for piece in pieces:
            yield piece
            if piece.width > history.HOUR and row is not None and piece.end > row[0]:
                yield Piece(history.HOUR, max(piece.begin, row[0]), piece.end)
