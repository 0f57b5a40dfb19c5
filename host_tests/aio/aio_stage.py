"""A program for asyncio that runs until it is ended, and a peer at the same broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import interpreter_command, library
from flatmq import Client
from flatmq.message import Message
from flatmq_tools import broker, interpreter

PATIENCE = 60.0  # seconds that any one step may take
HEAP = "192k"  # of MicroPython, for a program, what it imports, and the compiler


@contextmanager
def running(
    python: str, program: Path, output: Path, *arguments: str, folders: Sequence[Path] = ()
) -> Iterator[None]:
    """Run a program during the block, at whose end it must still be there, and kill it.

    What it prints goes to `output`. It imports from `folders`, then flatmq.
    """
    command = interpreter_command(python, HEAP)
    if python == "cpython":
        command.append("-u")
    with output.open("w") as written:
        process = subprocess.Popen(
            [*command, str(program), *arguments],
            env=interpreter.environment(*folders, library(python)),
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()


class Peer:
    """Another client of `target`, subscribed to everything.

    `heard` has topic, payload and whether the message was retained.
    """

    def __init__(self, target: broker.Broker, name: bytes = b"peer") -> None:
        self.heard: list[tuple[bytes, bytes, bool]] = []
        self.client = Client(name, target.host, target.port)
        made = self.client.subscribe(b"#", self._take, 1)
        self.client.connect()
        self.until(lambda: made.granted is not None)

    def _take(self, message: Message) -> None:
        self.heard.append((message.topic, message.payload, bool(message.retain)))

    def payloads(self, topic: bytes) -> list[bytes]:
        """Return what was published to a topic while this peer was there."""
        return [payload for name, payload, retain in self.heard if name == topic and not retain]

    def until(
        self, condition: Callable[[], bool], again: Callable[[], object] = lambda: None
    ) -> None:
        """Poll until a condition holds; call `again` before each poll."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.heard
            again()
            self.client.poll(50)
