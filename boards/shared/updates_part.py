"""The part `updates` of a station: new versions over MQTT. See docs/updates.md.

The work is done by flatmq.ota.
"""

import json

from flatmq.ota import Updates

PATH = "/ota.json"  # written by `flatmq image --ota-key`


def said() -> dict:
    """Return what /ota.json says. OSError if it is missing or damaged."""
    try:
        with open(PATH) as f:
            found = json.load(f)
        found["key"] = int(found["key"], 16)
        return found
    except (OSError, ValueError, KeyError, TypeError):
        raise OSError(PATH + " is missing or damaged") from None


def updates(station) -> Updates:
    """Return the part. A version is healthy once a reading of it is acknowledged."""
    ota = said()

    def healthy():
        return station.seq > 0 and not station.unsent and not station.client.pending

    station.updates = made = Updates(
        station.client,
        station.base,
        ota["board"],
        ota["key"],
        groups=tuple([name.encode() for name in ota["groups"]]),
        healthy=healthy,
    )
    return made
