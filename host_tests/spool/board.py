"""A board with a spool on an ordinary folder, its broker, and its reboots."""

from pathlib import Path

from flatmq import Client
from flatmq.spool import Spool
from spool.model_broker import Broker


class Board:
    """The board and what is around it; `spool` are options of its Spool.

    `on` is what handles messages to the topic `in`. What the client gives up is in `reported`.
    """

    def __init__(self, folder: Path, version: int = 4, on=None, broker=None, **spool) -> None:
        self.folder = folder
        self.client_options: dict = {
            "clean_session": False, "rx_size": 128, "inflight": 4, "keepalive": 0, "give_up": 3,
            "retry_ms": 1, "retry_max_ms": 1, "version": version,
        }  # fmt: skip
        self.spool_options = spool
        self.on = on
        self.broker = broker or Broker(version)
        self.reported: list[tuple[int, bytes, str]] = []
        self.boot()

    def boot(self) -> None:
        """Start, also after the power was cut: what is in memory is gone."""
        self.broker.plug()
        self.client = Client(
            b"b",
            link=self.broker,
            on_dropped=lambda *about: self.reported.append(about),
            **self.client_options,
        )
        if self.on:
            self.client.subscribe(b"in", self.on, qos=2)
        self.spool = Spool(self.client, str(self.folder / "s"), **self.spool_options)
        self.client.start()

    def poll(self, times: int = 300) -> None:
        for _ in range(times):
            self.spool.poll(1)

    def publish(self, *numbers: int, qos: int = 1, topic: bytes = b"t") -> None:
        for n in numbers:
            assert self.spool.publish(topic, b"%05d" % n + bytes(20), qos)

    def flash(self) -> dict[str, bytes]:
        return {f.name: f.read_bytes() for f in (self.folder / "s").iterdir()}

    @property
    def got(self) -> list[int]:
        """Return what the broker has, in its order."""
        return [int(body[:5]) for _, _, body in self.broker.taken]

    @property
    def aside(self) -> list[int]:
        return [int(payload[:5]) for _, _, payload in self.spool.dropped()]
