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
    "flags of SUBACK are not looked at": Mutant(
        "client", "elif first == 0x90 or first == 0xB0:", "elif first & 0xF0 in (0x90, 0xB0):"
    ),
    "PUBREL may carry DUP in 3.1.1": Mutant(
        "client", "(first == 0x6A and self._who[0] == 3)", "first == 0x6A"
    ),
    "QoS 3 is taken for QoS 1": Mutant("router", "if first & 6 == 6:", "if False:"),
    "DUP at QoS 0 is let pass": Mutant("router", "if first & 14 == 8:", "if False:"),
    "a topic name may be one byte longer than its packet": Mutant(
        "router", "if n > end:", "if n > end + 1:"
    ),
    "a packet identifier may be half there": Mutant(
        "router", "if m.at + 2 > m.end:", "if m.at + 1 > m.end:"
    ),
    "packet identifier 0 is let pass": Mutant("router", "        if not pid:\n", "        if 0:\n"),
    "topic names need not be UTF-8": Mutant(
        "wire", "    return is_utf8(buf, at, end)", "    return True"
    ),
    "surrogates are UTF-8": Mutant("wire", " or 0xEDA0 <= c < 0xEE00", ""),
    "past U+10FFFF is UTF-8": Mutant("wire", " or c > 0xF48F", ""),
    "wildcards are let pass": Mutant("wire", 'buf.find(b"#", at, end) >= 0', "False"),
    "the identifier of a QoS 2 message is not kept": Mutant(
        "router", "self._ids[self._ids.index(0)] = pid", "pass"
    ),
    "a PUBREL forgets nothing": Mutant("router", "self._ids[self._ids.index(pid)] = 0", "pass"),
    "an acknowledgement of three bytes": Mutant(
        "client", "(end - at > 2 and first != 0x90)", "(end - at > 3 and first != 0x90)"
    ),
    "the end of a packet of 128 bytes and more is one byte off": Mutant(
        "client", "n = at + (n >> 2)", "n = at + (n >> 2) - 1"
    ),
    "what is skipped is one byte too long": Mutant(
        "client", "self._skip = end - self._have", "self._skip = end - self._have + 1"
    ),
    "five bytes of Remaining Length wait for more": Mutant("wire", "return -2", "return -1"),
    "a second CONNACK is welcome": Mutant("client", 'return "a second CONNACK"', "return None"),
    "PUBACK settles what waits for PUBCOMP": Mutant(
        "session", "if wait != self._wait[i]:", "if wait == PUBREC:"
    ),
    "the cut packet is moved one byte short": Mutant(
        "client", "            while at < self._have:\n", "            while at + 1 < self._have:\n"
    ),
    "a handler that raised is passed over": Mutant(
        "router", "self._handled = i  #", "self._handled = i + 1  #"
    ),
    "answers are forgotten when there is no room for more": Mutant(
        "session", "                    self.left = self._size + self.answers - self.out\n", ""
    ),
    "DUP is not set when a message goes again": Mutant("session", "self.buf[at] |= 8", "pass"),
    "the incoming identifiers outlive the session": Mutant(
        "router", "        if not same:\n", "        if False:\n"
    ),
    "a SUBACK that breaks a rule answers the subscription": Mutant(
        "router", "if codes and len(codes) != len(s.filters):", "if False:"
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
