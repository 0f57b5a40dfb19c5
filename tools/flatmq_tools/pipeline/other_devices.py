"""Devices of other makers, simulated for the demo: a Zigbee2MQTT bridge and a Tasmota plug."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flatmq import Client

from .processes import CommandError

EVERY = 0.5  # s between two rounds, in which each device publishes once
_PATIENCE = 60_000  # ms until the broker has acknowledged everything
_CONNECT = 30_000  # ms
_SENSORS = ("hall", "kitchen", "attic/north")


@dataclass
class Published:
    """The number of messages that the devices published."""

    messages: int = 0
    values: int = 0
    """Values in these messages, as the mappings read them."""


class OtherDevices:
    """Devices that publish at QoS 1 until they are stopped, from one connection.

    The topics of the bridge begin with `PREFIX-z2m`, those of the plug with `PREFIX/`.
    """

    def __init__(self, prefix: str, seed: int) -> None:
        self._prefix = prefix
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.published = Published()

    @property
    def mappings(self) -> list[str]:
        """Return the arguments of `--mapping` for these devices."""
        return [f"zigbee2mqtt={self._prefix}-z2m", f"tasmota={self._prefix}"]

    @property
    def filters(self) -> list[str]:
        """Topic filters for all that they publish."""
        return [f"{self._prefix}-z2m/#", f"{self._prefix}/#"]

    def is_theirs(self, topic: str) -> bool:
        """Return whether a message is of these devices."""
        return topic.startswith((f"{self._prefix}-z2m/", f"{self._prefix}/"))

    def start(self, host: str, port: int, user: str | None, password: str | None) -> None:
        """Begin to publish."""
        client = Client(
            f"{self._prefix}-others", host, port, tx_size=1 << 16, inflight=20,
            user=user, password=password if user else None, quiet=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, args=(client,), daemon=True)
        self._thread.start()

    def stop(self) -> Published:
        """Stop, and return what was published.

        Raises CommandError unless all of it was acknowledged.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise CommandError(f"the devices of other makers: {self._error}")
        return self.published

    def _run(self, client: Any) -> None:
        try:
            client.connect(_CONNECT)
            due = time.monotonic()
            while not self._stop.is_set() or not self.published.messages:
                for topic, document, values in self._round():
                    payload = json.dumps(document).encode()
                    while client.publish(topic, payload, 1) is None:
                        client.poll(10)
                    self.published.messages += 1
                    self.published.values += values
                due += EVERY
                while time.monotonic() < due and not self._stop.is_set():
                    client.poll(20)
            if not client.wait(_PATIENCE):
                raise CommandError(f"{client.pending} messages were not acknowledged")
            client.disconnect()
        except Exception as error:
            self._error = error

    def _round(self) -> Iterator[tuple[str, dict[str, Any], int]]:
        """A message of each device: topic, document, and the values in it."""
        chance, bridge = self._chance, f"{self._prefix}-z2m"
        for name in _SENSORS:
            seen = {
                "temperature": round(chance.uniform(18, 23), 2),
                "humidity": round(chance.uniform(40, 60), 2),
                "battery": 97,
                "linkquality": chance.randint(80, 200),
                "update": {"state": "idle"},
            }
            yield f"{bridge}/{name}", seen, 4
        yield f"{bridge}/door", {"contact": chance.random() < 0.9, "voltage": 2985}, 2
        yield f"{bridge}/bridge/logging", {"level": "info", "message": "alive"}, 0
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        power = {"Power": chance.randint(38, 44), "Voltage": 229, "Current": 0.18, "Total": 15.9}
        yield f"{self._prefix}/tele/plug/SENSOR", {"Time": now, "ENERGY": power}, 4
        yield f"{self._prefix}/tele/plug/STATE", {"Time": now, "POWER": "ON", "UptimeSec": 611}, 2
