"""Which clients are measured, where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

MICROPYTHON = "micropython"
CPYTHON = "cpython"


@dataclass(frozen=True)
class Client:
    """One client; `module` is `device/client_<module>.py`.

    `shims` names a folder below `device/shims`; with `romfs` the library is compiled to .mpy and
    runs from a ROMFS image, and only its memory is measured.
    """

    name: str
    module: str
    runtime: str = MICROPYTHON
    sdists: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    shims: str = ""
    is_floor: bool = False
    romfs: bool = False

    @property
    def key(self) -> str:
        """Unique among the clients."""
        return f"{self.module}@{self.runtime}" + ("#romfs" if self.romfs else "")

    @property
    def floor_key(self) -> str:
        """Key of the floor under the same interpreter."""
        return f"floor@{self.runtime}"


CLIENTS = (
    Client("floor", "floor", is_floor=True),
    Client("flatmq", "flatmq"),
    Client("flatmq, .mpy in ROMFS", "flatmq", romfs=True),
    Client(
        "umqtt.simple", "umqtt_simple", sdists=("micropython-umqtt.simple==1.3.4",),
    ),
    Client(
        "umqtt.simple2", "umqtt_simple2", sdists=("micropython-umqtt.simple2==2.2.0",),
    ),
    Client(
        "chumicro-mqtt",
        "chumicro",
        wheels=(
            "chumicro-mqtt==0.30.3",
            "chumicro-sockets==0.21.3",
            "chumicro-timing==0.8.4",
        ),
    ),
    Client("aiomqttc", "aiomqttc", wheels=("aiomqttc==1.0.7",)),
    Client(
        "MiniMQTT",
        "minimqtt",
        wheels=(
            "adafruit-circuitpython-minimqtt==8.1.0",
            "adafruit-circuitpython-ticks==1.1.7",
        ),
        shims="minimqtt",
    ),
    Client("floor (CPython)", "floor", runtime=CPYTHON, is_floor=True),
    Client("flatmq (CPython)", "flatmq", runtime=CPYTHON),
    Client("paho-mqtt (CPython)", "paho", runtime=CPYTHON),
)  # fmt: skip
