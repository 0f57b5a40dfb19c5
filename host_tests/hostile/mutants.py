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
        "DUP at QoS 0 is not counted": ("stats.dup0 += 1", "pass"),
        "a message without a valid topic name is not counted": ("stats.skipped += 1", "pass"),
        "a packet identifier may be half there": ("elif e > end:", "elif e > end + 1:"),
        "a handler that raised is passed over": (
            "calling = _HANDLER\n                                if h(m)",
            "calling = _HANDLER\n                                at = end\n"
            "                                if h(m)",
        ),
        "the end of a packet of 128 bytes and more is one byte off": (
            "end = t + n\n", "end = t + n - (1 if n > 127 else 0)\n"
        ),
        "five bytes of Remaining Length wait for more": ("what = _LONG\n", "pass\n"),
        "the cut packet is moved one byte short": (
            "rx[n:size] = rx[at:have]", "rx[n : size - 1] = rx[at : have - 1]"
        ),
        "a length that is not there is believed": (
            "if i < 99:\n                            break",
            "if i < 99:\n                            pass",
        ),
        "answers are forgotten when there is no room for more": (
            "busy = waits\n", "busy = False\n"
        ),
        "a large message ends one byte late": ("more = end - n\n", "more = end - n + 1\n"),
        "it keeps what it has read": (
            "have += n\n", "have += n; c.kept_too = getattr(c, 'kept_too', []) + [n]\n"
        ),
        "PUBACK settles what waits for PUBCOMP": (
            "if p < sent and n <= sent and q[p] & 6 != 6:", "if p < sent and n <= sent:"
        ),
        "PUBACK for QoS 2 is a stray": (
            "if p < sent and n <= sent and q[p] & 6 != 6:",
            "if p < sent and n <= sent and q[p] & 6 == 2:",
        ),
        "PUBACK settles a message of which a part has left": (
            "if p < sent and n <= sent and", "if p < sent and"
        ),
        "what was handled before a handler raised is not counted": (
            "stats.received += got\n            got = calling", "got = calling"
        ),
        "a packet before CONNACK may wait": (
            "if not opened and first != 0x20 and not (five and first == 0xF0):",
            "if not opened and first != 0x20 and at + 1 < have and not five:",
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
        "the list of received messages does not grow": (
            "if 0 not in c.received:", "if not c.received:"
        ),
        "PUBREC of a message that is not in flight is not answered": (
            "            c.stats.strays += 1\n        first = 0x62",
            "            c.stats.strays += 1\n            return None\n        first = 0x62",
        ),
        "PUBREC counts for a message of which a part has left": (
            " and end_of(c.q, p) <= c.sent", ""
        ),
    },
    "rare/pieces": {
        "the topic name of a large message is not kept": ("m.buf[at] = m.buf[m.t]", "pass"),
        "a large message without a valid topic name is delivered": ("if self.blind:", "if False:"),
        "a handler that took a piece has taken them all": (
            "self.taken = False  # a handler may", "pass  # a handler may"
        ),
    },
    "alone": {
        "no PINGRESP is waited for": ("if self.asked < 2:", "if not self.asked:"),
        "all go at once": ("if self.left <= 0 and not self.suspects:", "if True:"),
    },
    "dial": {
        "DUP goes to a broker that has forgotten": ("c.q[p] &= 0xF7", "pass"),
        "MQTT 3.1 does not subscribe again": (" or c.version == 3)\n", ")\n"),
        "a session is trusted that was never seen": (
            "sure = same and c.trusted", "sure = same"
        ),
        "what was received is forgotten before PINGRESP": (
            "if c.two and (not same or c.unsure == 2):", "if c.two and (not same or c.unsure):"
        ),
        "what was written is not marked": (
            "if p < sent and (q[p] & 6 or e <= sent):", "if e <= sent and not q[p] & 6:"
        ),
    },
    "subs": {
        "unanswered requests are forgotten": (
            "            waiting.append(r)\n", "            pass\n"
        ),
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
        "a property may come twice": ("if seen >> i % 29 & 1:", "if False:"),
        "a flag may be anything": ("return buf[at] < 2", "return True"),
        "a text may be anything": (
            "return (is_name if i == _RESPONSE else is_utf8)(buf, at + 2, end)", "return True"
        ),
        "0 is let pass": ("if i in _NOT_ZERO:", "if False:"),
        "0 with needless bytes is let pass": (
            "return number(buf, at, end) > 3", "return buf[at] != 0"
        ),
    },
    "v5/packets": {
        "a property length of an acknowledgement may be short": (
            "return _PROPERTIES if at < end else 0", "return 0"
        ),
        "AUTH is passed over": ("if c.auth else _NOT_ASKED", "if c.auth else None"),
        "a broken rule is not answered": (
            'load("reasons", "v5.").send(c, error & 255)', "pass"
        ),
        "Receive Maximum is not kept by publish": (
            "c.inflight = min(c.slots, n)", "c.inflight = c.slots"
        ),
        "Receive Maximum is not kept after a loss": (
            "if c.kept > c.inflight and not c.alone:", "if False:"
        ),
        "an alias outlives its connection": ("    if c.aliases:\n", "    if False:\n"),
        "subscriptions never have an identifier": (
            "and c.offers[_IDENTIFIERS] else", "and False else"
        ),
        "subscriptions always have an identifier": ("and c.offers[_IDENTIFIERS] else", "else"),
    },
    "v5/connack": {
        "a session that is not there is malformed": ("return _PRESENT", "return _FLAGS"),
        "a CONNACK that breaks a rule counts": (
            "if flags and (code or c.clean):", "if flags and code:"
        ),
    },
    "v5/carry": {
        "a payload format must be 0 or 1": ("return faulty(c, e, end, i, n)", "return n"),
        "a topic alias is passed over": ("and c.message.properties.find(_ALIAS):", "and False:"),
        "identifiers are passed over": ("if c.rx.find(b\"\\x0b\", e, n) < 0", "if True"),
        "an identifier from before a reboot is believed": (
            "return False if identifier > c.numbered", "return True if identifier > c.numbered"
        ),
    },
    "v5/acks": {
        "any reason code is an error": ("if code > 127:", "if code:"),
        "a refused message stays": (
            'load("reasons", "v5.").refused(c, first, t)', "None"
        ),
        "PUBREL with a reason code is not answered": ("if first != 0x62:", "if True:"),
    },
    "v5/auth": {
        "AUTH cuts a CONNECT that is half out": (
            "if c.began:\n            return _AUTH_FIRST",
            "if False:\n            return _AUTH_FIRST",
        ),
        "success of AUTH needs a method": (
            "if c.connected and not code and end - t < 2:", "if False:"
        ),
    },
    "v5/reasons": {
        "a refused message is not reported": (
            'load("strays").remove(c, p, pid, reason)', 'load("strays").release(c, p)'
        ),
    },
    "v5/flow": {
        "messages that the broker does not take go again": (
            "        if reason:\n            _set", "        if False:\n            _set"
        ),
        "what is set aside waits for PINGRESP": (
            "c.alone.left = min(c.alone.left, c.pending)", "pass"
        ),
    },
    "v5/alias": {
        "more aliases than the broker takes": (
            "if n > c.offers[_TOPIC_ALIAS_MAXIMUM]:", "if n > 65535:"
        ),
    },
    "v5/pieces": {
        "properties of a large message are not kept": (
            "        self.keep(e)\n        m.at", "        self.keep(n - size)\n        m.at"
        ),
        "more is kept of a large message than there is room for": (
            "        if size > at:", "        if size > have and size > at:"
        ),
    },
    "v5/replies": {
        "answers belong to any request": (
            "is_value(message.properties, _CORRELATION, self._data[i])", "True"
        ),
        "requests are not given up": ("if left <= 0:", "if False:"),
    },
}  # fmt: skip

# What is wrong below MQTT, which shows over WebSocket alone.
BELOW: Faults = {
    "stream_websocket_masks": {
        "what is written is not masked": ("words[at] ^= a", "pass"),
    },
    "stream_websocket": {
        "the payload of a masked frame is taken": ("if c & _MASKED:", "if False:"),
        "reserved bits are let pass": ("if c & _RESERVED:", "if False:"),
        "text is taken for MQTT": ("elif kind == _TEXT:", "elif False:"),
        "a control frame may be in fragments": ("elif not c & _FINAL:", "elif False:"),
        "a control frame may be long": (
            "             if self._kind & _CONTROL:", "             if False:"
        ),
        "fragments may be in any order": (
            "elif self._fragments != (kind == _CONTINUATION):", "elif False:"
        ),
        "a length of gigabytes is believed": ("const(0x3FFFFF)", "const(0x3FFFFFFFFFFFFFFF)"),
        "a length of 16 bits is read from its second byte": (
            "self._stage = 2 if c == 126 else 8", "self._stage = 1 if c == 126 else 8"
        ),
        "payload behind a header stays where it is": ("buf[to] = buf[at]", "pass"),
        "an empty frame is the end": (
            "raise self._why\n        return None", "raise self._why\n        return 0"
        ),
        "pings are not answered": ("self._due = _FINAL | _PONG", "self._due = 0"),
        "a pong goes into the middle of a frame": (
            "if self._due and self._at == self._end and not self._rest:",
            "if self._due and not self._mine:",
        ),
        "any code is sent back": ("code = _PROTOCOL_ERROR", "pass"),
        "a Close frame is not answered": ("self._due = _FINAL | _CLOSE", "self._due = 0"),
        "a WebSocket that is over reads on": (
            "raise self._why\n        if self._due or self._mine:",
            "pass\n        if self._due or self._mine:",
        ),
        "it keeps why a WebSocket was closed": (
            "self._close(code)\n\n    def _fail",
            "self._close(code)\n        self.kept = getattr(self, 'kept', []) + [text]\n\n"
            "    def _fail",
        ),
    },
    "stream_websocket_upgrade": {
        "any answer opens a WebSocket": ('if found.get(b"accept") != self._accept:', "if False:"),
        "any sub-protocol will do": ('if found.get(b"protocol") != b"mqtt":', "if False:"),
        "an extension is let pass": ('if found.get(b"extensions"):', "if False:"),
        "any status will do": (' or words[1] != b"101"', ""),
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
