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
    "DUP at QoS 0 is not counted": Mutant(
        "router", "        elif m.dup:\n            stats.dup0 += 1\n", ""
    ),
    "a packet identifier may be half there": Mutant(
        "router", "if m.at + 2 > m.end:", "if m.at + 1 > m.end:"
    ),
    "surrogates are UTF-8": Mutant("topic", " or 0xEDA0 <= c < 0xEE00", ""),
    "wildcards are let pass": Mutant("topic", 'buf.find(b"#", at, end) >= 0', "False"),
    "the identifier of a QoS 2 message is not kept": Mutant(
        "router", "received[received.index(0)] = m.id", "pass"
    ),
    "the end of a packet of 128 bytes and more is one byte off": Mutant(
        "reader", "                end = t + n\n",
        "                end = t + n - (1 if n > 127 else 0)\n",
    ),
    "five bytes of Remaining Length wait for more": Mutant(
        "reader", 'what = "Remaining Length of 5 bytes"', "break"
    ),
    "PUBACK settles what waits for PUBCOMP": Mutant(
        "session", "if first != _PUBACK or due != _PUBREC:", "if first != _PUBACK:"
    ),
    "PUBACK for QoS 2 is a stray": Mutant(
        "session", "if first != _PUBACK or due != _PUBREC:", "if True:"
    ),
    "the cut packet is moved one byte short": Mutant(
        "reader",
        "while at < have:\n                    buf",
        "while at + 1 < have:\n                    buf",
    ),
    "a length that is not there is believed": Mutant("reader", " or t > have:", ":"),
    "a handler that raised is passed over": Mutant(
        "router", "self.done = i  #", "self.done = i + 1  #"
    ),
    "answers are forgotten when there is no room for more": Mutant(
        "reader", "elif s.answers > s.room:\n                            n = LATER",
        "elif s.answers > s.room:\n                            n = True",
    ),
    "answers that come while others are written are forgotten": Mutant(
        "writer", "            s.answers -= answered\n", "            s.answers = 0\n"
    ),
    "the topic name of a large message is not kept": Mutant(
        "chunks", "m.buf[at] = m.buf[m.topic_at]", "pass"
    ),
    "a large message ends one byte late": Mutant(
        "reader", "more = end - what\n", "more = end - what + 1\n"
    ),
    "it keeps what it has read": Mutant(
        "reader", "        s.asked = False\n",
        "        s.asked = False\n        s.kept = getattr(s, 'kept', []) + [what]\n",
    ),
    "it waits for room without end": Mutant(
        "writer", "                s.blocked = True\n                yield None\n",
        "                s.blocked = True\n",
    ),
    "after the peer has closed all go at once": Mutant(
        "resend", "            self._single = True\n", ""
    ),
    "no PINGRESP is waited for": Mutant(
        "resend", "            if s.asked:\n                return 0\n", ""
    ),
    "DUP goes to a broker that has forgotten": Mutant(
        "resend", "if self.sent >= 0 and s.same else", "if self.sent >= 0 else"
    ),
    "requests leave in another order": Mutant(
        "requests", "        s.urgent.append(packet(r))\n",
        "        s.urgent.insert(0, packet(r))\n",
    ),
    "a request that found no room is forgotten": Mutant(
        "requests", "                router.waiting = True\n", ""
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
