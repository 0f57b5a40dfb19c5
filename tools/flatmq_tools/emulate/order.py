"""The order of `flatmq emulate` to its child process."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Order:
    """A machine, its network, and what happens to it. Times are seconds of the board's clock."""

    board: str
    """The name of its file in firmware/."""
    image: str
    """The file for its flash: UF2, or what goes to `flashing.offset`."""
    broker: tuple[str, int]
    ports: tuple[int, ...] = ()
    """Those, besides the broker's and MQTT's, at which the board reaches the broker."""
    wifi: bool = True
    """It has a radio."""
    qemu: str = ""
    """The program that emulates an ESP32."""
    machine: str = ""
    """QEMU: its -machine."""
    port: int = 0
    """For its serial line; 0: any."""
    resets: tuple[float, ...] = ()
    losses: tuple[tuple[float, float], ...] = ()
    """Of the Wi-Fi: when, and for how long."""
    cuts: tuple[float, ...] = ()
    """After which the power is cut during the next write to the flash."""

    def text(self) -> str:
        """The order as JSON, for `read`."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Order:
        """The order of `text`."""
        values = json.loads(text)
        values["broker"] = tuple(values["broker"])
        return cls(**values)
