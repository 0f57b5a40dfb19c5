"""The part `time` of a station: the clock is set by MQTT. See docs/crashes.md.

The work is done by flatmq.timesync.
"""

from flatmq.timesync import TimeSync


def synced(station) -> TimeSync:
    """Return the part."""
    return TimeSync(station.client, station.base + b"time")
