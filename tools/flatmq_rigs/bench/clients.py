"""The clients that are measured, and the source of each."""

from __future__ import annotations

from dataclasses import dataclass

from flatmq_rigs.bench.peers import UMQTT_SIMPLE

FLOOR = "floor"


@dataclass(frozen=True)
class Client:
    """One client; `module` is `device/client_<module>.py`.

    `shims` names a folder below `device/shims`; with `romfs` the library is compiled to .mpy and
    runs from a ROMFS image, and only its memory is measured. `note` says what the measurement
    does that an application need not.
    """

    name: str
    module: str
    sdists: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    shims: str = ""
    is_floor: bool = False
    romfs: bool = False
    note: str = ""

    @property
    def is_ours(self) -> bool:
        return self.module == "flatmq"

    @property
    def key(self) -> str:
        """Unique among the clients."""
        return self.module + ("#romfs" if self.romfs else "")


CLIENTS = (
    Client(FLOOR, FLOOR, is_floor=True),
    Client(
        "flatmq", "flatmq",
        note="sizes as shipped; its handler compares the whole payload with what it should be",
    ),
    Client(
        "flatmq, .mpy in ROMFS", "flatmq", romfs=True,
        note="without the image, which is in the heap here and in flash on a board",
    ),
    Client(
        "umqtt.simple", "umqtt_simple", sdists=(UMQTT_SIMPLE,),
        note="it waits for each acknowledgement, so one message is in flight",
    ),
    Client(
        "MiniMQTT", "minimqtt", shims="minimqtt",
        wheels=("adafruit-circuitpython-minimqtt==8.1.0", "adafruit-circuitpython-ticks==1.1.7"),
        note="runs over a small CircuitPython-like socket of ours, with a timeout of 10 ms "
        "instead of 1 s; it waits for each acknowledgement",
    ),
)  # fmt: skip
