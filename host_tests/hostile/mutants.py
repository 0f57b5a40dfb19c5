"""Clients with one thing wrong each, which whatever looks for faults has to find."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import flatmq

SOURCES = Path(flatmq.__file__).parent

# By module of the client: a text there, and what replaces it.
Faults = dict[str, dict[str, tuple[str, str]]]

# What the kept cases of 3.1.1 find.
FAULTS: Faults = {
    "engine": {
        "a message without a valid topic name is not counted": ("stats.skipped += 1", "pass"),
        "a handler that raised is passed over": (
            "calling = _HANDLER\n                                    if h(m)",
            "calling = _HANDLER\n                                    at = end\n"
            "                                    if h(m)",
        ),
        "the cut packet is moved one byte short": (
            "rx[n:size] = rx[at:have]", "rx[n : size - 1] = rx[at : have - 1]"
        ),
        "answers are forgotten when there is no room for more": (
            "busy = waits\n", "busy = False\n"
        ),
        "it keeps what it has read": (
            "have += n\n", "have += n; c.kept_too = getattr(c, 'kept_too', []) + [n]\n"
        ),
        "PUBACK for QoS 2 is a stray": (
            "if p < sent and n <= sent and q[p] & 6 != 6:",
            "if p < sent and n <= sent and q[p] & 6 == 2:",
        ),
        "answers are written in part": ("acks[0:pos] = b\"\"", "acks[0:] = b\"\"; pos = 0"),
    },
    "rare/several": {
        "of several handlers the one that raised is passed over": (
            "        if s.handler(m) is HOLD:",
            "        c.done += 1\n        if s.handler(m) is HOLD:",
        ),
    },
    "rare/qos2": {
        "the identifier of a QoS 2 message is not kept": (
            "c.received[c.received.index(0)] = pid", "pass"
        ),
        "PUBREC of a message that is not in flight is not answered": (
            "            c.stats.strays += 1\n        first = 0x62",
            "            c.stats.strays += 1\n            return None\n        first = 0x62",
        ),
    },
    "rare/pieces": {
        "the topic name of a large message is not kept": ("m.buf[at] = m.buf[m.t]", "pass"),
    },
    "alone": {
        "no PINGRESP is waited for": ("if self.asked < 2:", "if not self.asked:"),
    },
    "dial": {
        "a session is trusted that was never seen": (
            "sure = same and c.trusted", "sure = same"
        ),
        "what was received is forgotten before PINGRESP": (
            "if c.two and (not same or c.unsure == 2):", "if c.two and (not same or c.unsure):"
        ),
    },
    "subs": {
        "SUBSCRIBE does not wait for PINGRESP": ("if c.unsure == 1:", "if False:"),
    },
    "rare/utf8": {
        "surrogates are UTF-8": (" or 0xEDA0 <= c < 0xEE00", ""),
    },
    "__init__": {
        "wildcards are let pass": ('buf.find(b"#", at, end) < 0', "True"),
    },
}  # fmt: skip

# What those of MQTT 5 find.
FAULTS_5: Faults = {
    "v5/walk": {
        "an unknown property is let pass": (
            "if i >= len(TABLE) or not TABLE[i] & packet:", "if i >= len(TABLE):"
        ),
        "a text may be anything": (
            "return (is_name if i == _RESPONSE else is_utf8)(buf, at + 2, end)", "return True"
        ),
    },
    "v5/packets": {
        "a property length of an acknowledgement may be short": (
            "return _PROPERTIES if at < end else 0", "return 0"
        ),
        "Receive Maximum is not kept after a loss": (
            "if c.kept > c.inflight and not c.alone:", "if False:"
        ),
        "an alias outlives its connection": ("    if c.aliases:\n", "    if False:\n"),
    },
    "v5/connack": {
        "a CONNACK that breaks a rule counts": (
            "if flags and (code or c.clean):", "if flags and code:"
        ),
    },
    "v5/carry": {
        "a payload format must be 0 or 1": ("return faulty(c, e, end, i, n)", "return n"),
        "identifiers are passed over": ("if c.rx.find(b\"\\x0b\", e, n) < 0", "if True"),
    },
    "v5/acks": {
        "any reason code is an error": ("if code > 127:", "if code:"),
        "PUBREL with a reason code is not answered": ("if first != 0x62:", "if True:"),
    },
    "v5/auth": {
        "AUTH cuts a CONNECT that is half out": (
            "if c.began and not c.connected:\n        return", "if False:\n        return"
        ),
    },
    "v5/reasons": {
        "a refused message is not reported": (
            'load("strays").remove(c, p, pid, reason)', 'load("strays").release(c, p)'
        ),
    },
    "v5/flow": {
        "messages that the broker does not take go again": (
            "        if reason:\n            c.q[p] = first", "        if False:\n            pass"
        ),
    },
    "v5/alias": {
        "more aliases than the broker takes": (
            "if n > c.offers[_TOPIC_ALIAS_MAXIMUM]:", "if n > 65535:"
        ),
    },
    "v5/pieces": {
        "properties of a large message are not kept": (
            "            self.keep(e)\n            m.at",
            "            self.keep(m.t + 2)\n            m.at",
        ),
    },
    "v5/replies": {
        "answers belong to any request": (
            "is_value(message.properties, _CORRELATION, self._data[i])", "True"
        ),
    },
}  # fmt: skip

# What is wrong below MQTT, which shows over WebSocket alone.
BELOW: Faults = {
    "stream_websocket_masks": {
        "what is written is not masked": ("words[at] ^= a", "pass"),
    },
    "stream_websocket": {
        "the payload of a masked frame is taken": ("if c & _MASKED:", "if False:"),
        "text is taken for MQTT": ("elif kind == _TEXT:", "elif False:"),
        "fragments may be in any order": (
            "elif self._fragments != (kind == _CONTINUATION):", "elif False:"
        ),
        "a length of gigabytes is believed": ("const(0x3FFFFF)", "const(0x3FFFFFFFFFFFFFFF)"),
        "pings are not answered": ("self._due = _FINAL | _PONG", "self._due = 0"),
        "a pong goes into the middle of a frame": (
            "if self._due and self._at == self._end and not self._rest:",
            "if self._due and not self._mine:",
        ),
        "a Close frame is not answered": ("self._due = _FINAL | _CLOSE", "self._due = 0"),
    },
    "stream_websocket_upgrade": {
        "any answer opens a WebSocket": ('if found.get(b"accept") != self._accept:', "if False:"),
        "an answer without end is read on": ("if not self._left:", "if False:"),
    },
}  # fmt: skip


class Mutant(NamedTuple):
    """A change of a module of the client: some text replaces another."""

    name: str
    finder: str
    module: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return self.name

    def places(self) -> int:
        """Return how often the text is there; it must be once."""
        return (SOURCES / f"{self.module}.py").read_text().count(self.right)

    def make(self, into: Path) -> Path:
        """Write the client with that fault; return the folder to import it from."""
        folder = into / "flatmq"
        shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / f"{self.module}.py"
        path.write_text(path.read_text().replace(self.right, self.wrong))
        return into


MUTANTS = [
    Mutant(name, finder, module, right, wrong)
    for finder, modules in (("4", FAULTS), ("5", FAULTS_5), ("websocket", BELOW))
    for module, faults in modules.items()
    for name, (right, wrong) in faults.items()
]
