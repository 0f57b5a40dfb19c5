"""The speed of each part of the ingest, measured in a process of its own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.log import Writer

from .figures import Figure, Watch
from .messages import CLIENT_ID, FILTER, PATIENCE, fill, stream

_CHUNK = 32 * 1024


def flatmq(host: str, port: int, folder: Path, count: int) -> Figure:
    """The ingest."""
    with Writer(folder) as log:
        ingest = Ingest(log, (host, port), [FILTER], client_id=CLIENT_ID)
        watch = Watch()
        ingest.start()
        while log.synced < count:
            ingest.poll(1000)
        ingest.stop()
        return watch.figure(log.next_offset)


def paho(host: str, port: int, folder: Path, count: int) -> Figure:
    """The same with paho-mqtt."""
    from .paho_ingest import PahoIngest

    with Writer(folder) as log:
        ingest = PahoIngest(log, (host, port), [FILTER], CLIENT_ID)
        watch = Watch()
        ingest.start()
        while log.synced < count:
            ingest.poll(1000)
        figure = watch.figure(log.next_offset)
        ingest.stop()
        return figure


class _Memory:
    """A link to a broker that accepts the client and sends these bytes, one chunk per read."""

    address = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def connect(self) -> None:
        """Connect at once."""

    def stream(self) -> _Memory:
        """Return the stream."""
        return self

    def readinto(self, buf: memoryview) -> int | None:
        """Read a chunk."""
        n = min(len(buf), _CHUNK, len(self._data) - self._at)
        buf[:n] = self._data[self._at : self._at + n]
        self._at += n
        return n or None

    def write(self, _buf: bytes, _at: int, n: int) -> int:
        """Take what is written."""
        return n

    def wait(self, _ms: int, _out: bool) -> None:
        """Return at once: there is something to read."""

    def close(self) -> None:
        """Do nothing."""


def memory(_host: str, _port: int, folder: Path, count: int, version: int = 4) -> Figure:
    """The ingest, without a broker."""
    accepted = b"\x20\3\0\0\0" if version == 5 else b"\x20\2\0\0"
    link = _Memory(accepted + stream(count, version))
    with Writer(folder) as log:
        ingest = Ingest(log, ("", 0), [FILTER], version=version, link=link)
        watch = Watch()
        ingest.start()
        while log.synced < count:
            ingest.poll(1000)
        return watch.figure(log.next_offset)


def landing(_host: str, _port: int, folder: Path, count: int) -> Figure:
    """Log to the table raw."""
    with Writer(folder) as log:
        fill(log, count)
        log.rotate()
        watch = Watch()
        Landing(log, str(folder / "out")).land()
        return watch.figure(count)


RECEIVERS: dict[str, Callable[[str, int, Path, int], Figure]] = {
    "flatmq": flatmq,
    "paho": paho,
    "memory": memory,
    "memory-5": partial(memory, version=5),
    "landing": landing,
}
LABELS = {
    "flatmq": "the ingest, from the broker to its log",
    "paho": "as flatmq, with paho-mqtt",
    "memory": "as flatmq, of bytes that are in memory: no broker, and no network",
    "memory-5": "the same in MQTT 5",
    "landing": "the log to the table raw",
}
FROM_BROKER = ("flatmq", "paho")


if __name__ == "__main__":
    _, kind, to_host, to_port, into, how_many = sys.argv
    # Ends with the desk: nobody else would end it.
    signal.alarm(PATIENCE)
    print(json.dumps(RECEIVERS[kind](to_host, int(to_port), Path(into), int(how_many))))
