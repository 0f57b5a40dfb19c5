"""The numbers that define what is lost and who is silent, for Spark's jobs and for the state."""

from __future__ import annotations

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
