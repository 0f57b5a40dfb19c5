"""Clients with one thing wrong each, which whatever looks for faults has to find."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import flatmq

SOURCES = Path(flatmq.__file__).parent


class Mutant(NamedTuple):
    """In a module of the client some text stands in place of another."""

    module: str
    right: str
    wrong: str


MUTANTS = {
    "DUP at QoS 0 is let pass": Mutant("router", "if first & 14 == 8:", "if False:"),
    "a packet identifier may be half there": Mutant(
        "router", "if m.at + 2 > m.end:", "if m.at + 1 > m.end:"
    ),
    "surrogates are UTF-8": Mutant("wire", " or 0xEDA0 <= c < 0xEE00", ""),
    "wildcards are let pass": Mutant("wire", 'buf.find(b"#", at, end) >= 0', "False"),
    "the identifier of a QoS 2 message is not kept": Mutant(
        "router", "self._ids[self._ids.index(0)] = pid", "pass"
    ),
    "the end of a packet of 128 bytes and more is one byte off": Mutant(
        "client", "n = at + (n >> 2)", "n = at + (n >> 2) - 1"
    ),
    "five bytes of Remaining Length wait for more": Mutant("wire", "return -2", "return -1"),
    "PUBACK settles what waits for PUBCOMP": Mutant(
        "session", "if wait != self._wait[i]:", "if wait == PUBREC:"
    ),
    "the cut packet is moved one byte short": Mutant(
        "client",
        "while at < self._have:\n                buf",
        "while at + 1 < self._have:\n                buf",
    ),
    "a handler that raised is passed over": Mutant(
        "router", "self._handled = i  #", "self._handled = i + 1  #"
    ),
    "answers are forgotten when there is no room for more": Mutant(
        "session", "                    self.left = self._size + self.answers - self.out\n", ""
    ),
    "the topic name of a large message is not kept": Mutant(
        "router", "m.buf[at] = m.buf[m.topic_at]", "pass"
    ),
    "a large message ends one byte late": Mutant(
        "client", "        self._more = end\n", "        self._more = end + 1\n"
    ),
    "it keeps what it has read": Mutant(
        "client", "self._heard = self._now\n            self._asked",
        "self._heard = self._now\n            self._buf.extend(b'')\n"
        "            self._kept = getattr(self, '_kept', []) + [n]\n            self._asked",
    ),
    "it waits for room without end": Mutant(
        "client", "        while n is not None:\n", "        while True:\n            n = n or 0\n"
    ),
}  # fmt: skip


def make(name: str, into: Path) -> Path:
    """Writes the client with that fault; returns the folder to import it from."""
    mutant = MUTANTS[name]
    folder = into / "flatmq"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / f"{mutant.module}.py"
    text = path.read_text()
    assert text.count(mutant.right) == 1, f"{name}: {text.count(mutant.right)} places"
    path.write_text(text.replace(mutant.right, mutant.wrong))
    return into
