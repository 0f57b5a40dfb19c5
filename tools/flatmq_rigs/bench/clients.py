"""The clients that are measured, and the source of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

MICROPYTHON = "micropython"
CPYTHON = "cpython"
LINKS = {"tls": "TLS", "websocket": "WebSocket", "websocket+tls": "WebSocket and TLS"}


@dataclass(frozen=True)
class Client:
    """One client; `module` is `device/client_<module>.py`.

    `shims` names a folder below `device/shims`; with `romfs` the library is compiled to .mpy and
    runs from a ROMFS image, and only its memory is measured. `link` is one of LINKS, or nothing
    for TCP. `note` says what the measurement does that an application need not.
    """

    name: str
    module: str
    runtime: str = MICROPYTHON
    sdists: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    shims: str = ""
    is_floor: bool = False
    romfs: bool = False
    link: str = ""
    note: str = ""

    @property
    def is_ours(self) -> bool:
        """True for flatmq."""
        return self.module == "flatmq"

    @property
    def key(self) -> str:
        """Unique among the clients."""
        return self.plain_key + ("#romfs" if self.romfs else "") + (self.link and f":{self.link}")

    @property
    def plain_key(self) -> str:
        """Key of the same client over TCP."""
        return f"{self.module}@{self.runtime}"

    @property
    def floor_key(self) -> str:
        """Key of the floor under the same interpreter."""
        return f"floor@{self.runtime}"

    @property
    def argument(self) -> str:
        """The name by which the device scripts know the client."""
        return self.module + (self.link and f":{self.link}")

    def over(self, link: str, note: str = "") -> Client:
        """Return the same client over another link."""
        name, space, interpreter = self.name.partition(" (")
        name += f" over {LINKS[link]}{space}{interpreter}"
        return replace(self, name=name, link=link, note=note)


_PLAIN = (
    Client("floor", "floor", is_floor=True),
    Client(
        "flatmq", "flatmq",
        note="sizes as shipped; its handler compares the whole payload with what it should be; in "
        "rows of their own it copies it into a buffer, or takes it as bytes like the handlers of "
        "the others",
    ),
    Client(
        "flatmq, .mpy in ROMFS", "flatmq", romfs=True,
        note="without the image, which is in the heap here and in flash on a board",
    ),
    Client(
        "umqtt.simple", "umqtt_simple", sdists=("micropython-umqtt.simple==1.3.4",),
        note="it waits for each acknowledgement, so one message is in flight",
    ),
    Client(
        "umqtt.simple2", "umqtt_simple2", sdists=("micropython-umqtt.simple2==2.2.0",),
        note="4 messages in flight at QoS 1",
    ),
    Client(
        "MiniMQTT",
        "minimqtt",
        wheels=(
            "adafruit-circuitpython-minimqtt==8.1.0",
            "adafruit-circuitpython-ticks==1.1.7",
        ),
        shims="minimqtt",
        note="runs over a small CircuitPython-like socket of ours, with a timeout of 10 ms "
        "instead of 1 s; it waits for each acknowledgement",
    ),
    Client("floor (CPython)", "floor", runtime=CPYTHON, is_floor=True),
    Client("flatmq (CPython)", "flatmq", runtime=CPYTHON),
    Client(
        "paho-mqtt (CPython)", "paho", runtime=CPYTHON,
        note="driven by loop() in one thread; 20 messages in flight at QoS 1",
    ),
)  # fmt: skip
_FLATMQ, _UMQTT, _FLATMQ_CPYTHON = (
    next(client for client in _PLAIN if client.name == name)
    for name in ("flatmq", "umqtt.simple", "flatmq (CPython)")
)
_OVER_TLS = (
    "while this interpreter waits, it looks at a TLS socket every millisecond, which limits QoS 1"
)
_OVER_BOTH = (
    "with several messages in flight over this link, mosquitto 2.0.11 pauses for 50 ms or more "
    "before it acknowledges them, whatever the client"
)
CLIENTS = (
    *_PLAIN,
    _FLATMQ.over("tls", _OVER_TLS),
    _FLATMQ.over("websocket"),
    _FLATMQ.over("websocket+tls", _OVER_BOTH),
    _UMQTT.over("tls", "an SSLContext, as in later editions; this one asks for a module `ussl`"),
    _FLATMQ_CPYTHON.over("tls"),
    _FLATMQ_CPYTHON.over("websocket"),
    _FLATMQ_CPYTHON.over("websocket+tls", _OVER_BOTH),
)
