"""The part `updates` of a station: new versions over MQTT, see docs/updates.md."""

import json

from flatmq.ota import Updates

PATH = "/ota.json"  # written by `flatmq image --ota-key`


class UpdatesPart:
    """The updates of a station. A version works once it has published a reading."""

    def __init__(self, station) -> None:
        with open(PATH) as f:
            said = json.load(f)
        self._station = station
        groups = tuple(name.encode() for name in said["groups"])
        self.updates = Updates(
            station.client,
            station.base,
            said["board"],
            int(said["key"], 16),
            groups=groups,
            healthy=self._healthy,
        )
        self.poll = self.updates.poll

    def _healthy(self):
        station = self._station
        return station.seq > 0 and not station.unsent and not station.client.pending
