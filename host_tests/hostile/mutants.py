"""Clients with one thing wrong each, which whatever looks for faults has to find."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import flatmq

SOURCES = Path(flatmq.__file__).parent


class Mutant(NamedTuple):
    """A change of a module of the client: some text replaces another."""

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
        "resend", "return not s.asked", "return True"
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

# What is wrong below MQTT, which shows over WebSocket alone.
BELOW = {
    "the payload of a masked frame is taken": Mutant(
        "stream_websocket", "if c & _MASKED:", "if False:"
    ),
    "reserved bits are let pass": Mutant(
        "stream_websocket", "if c & _RESERVED:", "if False:"
    ),
    "text is taken for MQTT": Mutant("stream_websocket", "elif kind == _TEXT:", "elif False:"),
    "a control frame may be in fragments": Mutant(
        "stream_websocket", "elif not c & _FINAL:", "elif False:"
    ),
    "a control frame may be long": Mutant(
        "stream_websocket",
        "                if self._kind & _CONTROL:\n",
        "                if False:\n",
    ),
    "fragments may be in any order": Mutant(
        "stream_websocket", "elif self._fragments != (kind == _CONTINUATION):", "elif False:"
    ),
    "a length of gigabytes is believed": Mutant(
        "stream_websocket", "const(0x3FFFFF)", "const(0x3FFFFFFFFFFFFFFF)"
    ),
    "a length of 16 bits is read from its second byte": Mutant(
        "stream_websocket",
        "self._stage = 2 if c == 126 else 8",
        "self._stage = 1 if c == 126 else 8",
    ),
    "payload behind a header stays where it is": Mutant(
        "stream_websocket", "buf[to] = buf[at]", "pass"
    ),
    "an empty frame is the end": Mutant(
        "stream_websocket", "            raise self._why\n        return None\n",
        "            raise self._why\n        return 0\n",
    ),
    "pings are not answered": Mutant(
        "stream_websocket", "self._due = _FINAL | _PONG", "self._due = 0"
    ),
    "a pong goes into the middle of a frame": Mutant(
        "stream_websocket", "if self._due and self._at == self._end and not self._rest:",
        "if self._due and not self._mine:",
    ),
    "what is written is not masked": Mutant(
        "stream_websocket", "buf[off] ^ out[4 + (at & 3)]", "buf[off]"
    ),
    "any code is sent back": Mutant(
        "stream_websocket", "            code = _PROTOCOL_ERROR\n", "            pass\n"
    ),
    "a Close frame is not answered": Mutant(
        "stream_websocket", "self._due = _FINAL | _CLOSE", "self._due = 0"
    ),
    "a WebSocket that is over reads on": Mutant(
        "stream_websocket",
        "            raise self._why\n        if self._due or self._mine:\n",
        "            pass\n        if self._due or self._mine:\n",
    ),
    "it keeps why a WebSocket was closed": Mutant(
        "stream_websocket",
        "        self._close(code)\n\n    def _fail",
        "        self._close(code)\n        self.kept = [*getattr(self, 'kept', []), text]\n\n"
        "    def _fail",
    ),
    "any answer opens a WebSocket": Mutant(
        "stream_websocket_upgrade", 'if found.get(b"accept") != self._accept:', "if False:"
    ),
    "any sub-protocol will do": Mutant(
        "stream_websocket_upgrade", 'if found.get(b"protocol") != b"mqtt":', "if False:"
    ),
    "an extension is let pass": Mutant(
        "stream_websocket_upgrade", 'if found.get(b"extensions"):', "if False:"
    ),
    "any status will do": Mutant("stream_websocket_upgrade", ' or words[1] != b"101"', ""),
    "an answer without end is read on": Mutant(
        "stream_websocket_upgrade", "        if not self._left:\n", "        if False:\n"
    ),
}  # fmt: skip


def make(name: str, into: Path) -> Path:
    """Write the client with that fault; return the folder to import it from."""
    return make_of(name, MUTANTS.get(name) or BELOW[name], into)


def make_of(name: str, mutant: Mutant, into: Path) -> Path:
    """The same for a mutant that is given."""
    folder = into / "flatmq"
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / f"{mutant.module}.py"
    text = path.read_text()
    assert text.count(mutant.right) == 1, f"{name}: {text.count(mutant.right)} places"
    path.write_text(text.replace(mutant.right, mutant.wrong))
    return into
