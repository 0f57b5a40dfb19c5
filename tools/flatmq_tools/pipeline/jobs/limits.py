"""The numbers that define what is lost, who is silent, and which times are too far off."""

from __future__ import annotations

from typing import NamedTuple

FAR = 1000
"""Boots that are further apart were not counted up from one to the other: new flash."""
MOST = 1 << 42
"""More numbers than that are not counted as lost in a boot, so that a sum can hold any boots."""
QUIET = 3
"""A board is silent after so many times its usual interval."""
QUIET_UNNUMBERED = 3
"""A device without numbers is silent after so many times its longest usual interval, than which
95 % are shorter. Devices that send when something happens have no even intervals: their median
says little."""
QUIET_S = 1.0
"""Nobody is silent for less, in seconds: packs that came at once have no usual interval."""


class Bounds(NamedTuple):
    """Limits on how far the time of a reading may be from its arrival, in seconds."""

    ahead: float = 3600.0
    """Boards whose clocks are set are right to a second; an hour leaves room for those that drift,
    and for a receiver whose own clock is behind."""
    behind: float = 366 * 86_400.0
    """Boards keep readings on flash for months. Clocks that were never set are further behind:
    they begin in 1970, 2000 or 2021."""
