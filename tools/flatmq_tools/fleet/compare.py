"""A comparison of what arrived with what the boards of a fleet did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .truth import Boot

Key = tuple[str, int]
"""A device and a boot."""


@dataclass
class Seen:
    """A receiver's record of one board and boot."""

    readings: int = 0
    """Each counted once."""
    duplicates: int = 0
    """What came more than once, without the first."""
    lost: int = 0
    """Numbers that are missing below the largest."""
    reordered: int = 0
    """Numbers below one that came before."""


def count(messages: Iterable[tuple[str, int, int]]) -> dict[Key, Seen]:
    """Count (device, boot, seq) in the order in which they arrived."""
    seen: dict[Key, Seen] = {}
    numbers: dict[Key, set[int]] = {}
    largest: dict[Key, int] = {}
    for device, boot, seq in messages:
        key = device, boot
        each = seen.setdefault(key, Seen())
        had = numbers.setdefault(key, set())
        if seq in had:
            each.duplicates += 1
            continue
        had.add(seq)
        each.reordered += seq < largest.get(key, 0)
        largest[key] = max(seq, largest.get(key, 0))
    for key, each in seen.items():
        each.readings = len(numbers[key])
        each.lost = largest[key] - each.readings
    return seen


def differences(boots: Iterable[Boot], seen: Mapping[Key, Seen], order: bool = True) -> list[str]:
    """Return the differences, one line each; empty if both agree.

    Exact, but where the broker was away: what was not acknowledged then may have arrived or not,
    and what was sent again may have arrived twice. `order`: whether `reordered` is known.
    """
    found = []
    left = set(seen)
    for boot in boots:
        key = boot.device, boot.boot
        left.discard(key)
        if not boot.published and key not in seen:
            continue
        had = seen.get(key, Seen())
        open_ = len(boot.unacknowledged)
        again = len(boot.again)
        checks = [
            ("readings", had.readings, boot.published - open_, boot.published),
            (
                "duplicates",
                had.duplicates,
                len(boot.duplicated) - open_,
                len(boot.duplicated) + again,
            ),
            ("lost", had.lost, boot.gaps - open_, boot.gaps + open_),
        ]
        if order:
            planned = len(boot.reordered)
            checks.append(("reordered", had.reordered, planned - open_, planned + again))
        for name, is_, least, most in checks:
            if not least <= is_ <= most:
                wanted = f"{least}" if least == most else f"{least} to {most}"
                found.append(f"{boot.device} boot {boot.boot}: {name} {is_}, not {wanted}")
    found += [f"{device} boot {boot}: no such boot" for device, boot in sorted(left)]
    return found
