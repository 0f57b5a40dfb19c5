"""The part `updates` of a station: new versions over MQTT. See docs/updates.md.

The work is done by flatmq.ota.
"""

import json

from flatmq.ota import Updates

PATH = "/ota.json"  # written by `flatmq image --ota-key`


def updates(station) -> Updates:
    """Return the part. A version is healthy once a reading of it is acknowledged."""
    with open(PATH) as f:
        said = json.load(f)

    def healthy():
        return station.seq > 0 and not station.unsent and not station.client.pending

    station.updates = made = Updates(
        station.client,
        station.base,
        said["board"],
        int(said["key"], 16),
        groups=tuple([name.encode() for name in said["groups"]]),
        healthy=healthy,
    )
    return made
