"""Clients with one thing wrong each, which whatever looks for faults has to find."""

import shutil
from pathlib import Path
from typing import NamedTuple

import flatmq

SOURCES = Path(flatmq.__file__).parent


class Mutant(NamedTuple):
    """A change of a module of the client: some text replaces another."""

    name: str
    finder: str  # the version of MQTT whose kept cases find it, or "websocket"
    module: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return self.name

    def make(self, into: Path) -> Path:
        """Write the client with that fault; return the folder to import it from."""
        folder = into / "flatmq"
        shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / f"{self.module}.py"
        text = path.read_text()
        assert text.count(self.right) == 1, f"{path.name} has no one place for this fault"
        path.write_text(text.replace(self.right, self.wrong))
        return into


# Few, and of every kind: an oracle that has become blind shows.
MUTANTS = [
    Mutant(
        "it keeps what it has read", "4", "engine",
        "have += n\n", "have += n; c.kept_too = getattr(c, 'kept_too', []) + [n]\n",
    ),
    Mutant("SUBSCRIBE does not wait for PINGRESP", "4", "subs", "if c.unsure == 1:", "if False:"),
    Mutant("any reason code is an error", "5", "v5/acks", "if code > 127:", "if code:"),
    Mutant(
        "an alias outlives its connection", "5", "v5/packets",
        "    if c.aliases:\n", "    if False:\n",
    ),
    Mutant(
        "a pong goes into the middle of a frame", "websocket", "stream_websocket",
        "if self._due and self._at == self._end and not self._rest:",
        "if self._due and not self._mine:",
    ),
    Mutant(
        "any answer opens a WebSocket", "websocket", "stream_websocket_upgrade",
        'if found.get(b"accept") != self._accept:', "if False:",
    ),
]  # fmt: skip
