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
            "while at < have:\n                                rx[n]",
            "while at + 1 < have:\n                                rx[n]",
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
            "have += n\n", "have += n\n                        "
            "c.kept_too = getattr(c, 'kept_too', []) + [n]\n"
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
            "stats.received += got\n        c.saved", "c.saved"
        ),
        "a packet before CONNACK may wait": (
            "if not opened and first != 0x20:",
            "if not opened and first != 0x20 and at + 1 < have:",
        ),
        "answers are written in part": ("acks[0:pos] = b\"\"", "acks[0:] = b\"\"; pos = 0"),
    },
    "core/route": {
        "of several handlers the one that raised is passed over": (
            "c.done = i  #", "c.done = i + 1  #"
        ),
    },
    "rare/qos2": {
        "the identifier of a QoS 2 message is not kept": (
            "received[received.index(0)] = pid", "pass"
        ),
        "the list of received messages does not grow": ("received.append(pid)", "pass"),
        "PUBREC of a message that is not in flight is not answered": (
            "            c.stats.strays += 1\n        first = 0x62",
            "            c.stats.strays += 1\n            return None\n        first = 0x62",
        ),
        "PUBREC counts for a message of which a part has left": (
            " and end_of(c.q, p) <= c.sent", ""
        ),
    },
    "rare/pieces": {
        "the topic name of a large message is not kept": ("m.buf[m.t] = m.buf[t]", "pass"),
        "a handler that took a piece has taken them all": (
            "self.taken = False  # a handler may", "pass  # a handler may"
        ),
    },
    "rare/aside": {
        "no PINGRESP is waited for": ("if self.asked < 2:", "if not self.asked:"),
        "all go at once": ("if self.left <= 0 and not self.suspects:", "if True:"),
    },
    "rare/dial": {
        "DUP goes to a broker that has forgotten": ("first &= 0xF7", "pass"),
        "MQTT 3.1 does not subscribe again": (" or c.version == 3)\n", ")\n"),
        "a session is trusted that was never seen": (
            "doubt = same and not c.trusted", "doubt = False"
        ),
        "what was written is not marked": (
            "q[p] |= 8\n        elif e <= sent", "pass\n        elif e <= sent"
        ),
    },
    "rare/subs": {
        "unanswered requests are forgotten": (
            "            waiting.append(r)\n", "            pass\n"
        ),
    },
    "topic": {
        "surrogates are UTF-8": (" or 0xEDA0 <= c < 0xEE00", ""),
        "wildcards are let pass": ('buf.find(b"#", at, end) >= 0', "False"),
    },
}  # fmt: skip

# What those of MQTT 5 find, in what is the old core.
OLD: Faults = {
    "router": {
        "the identifier of a QoS 2 message is not kept": (
            "received[received.index(0)] = m.id", "pass"
        ),
        "a handler that raised is passed over": ("self.done = i  #", "self.done = i + 1  #"),
    },
    "reader": {
        "the end of a packet of 128 bytes and more is one byte off": (
            "end = t + n", "end = t + n - (1 if n > 127 else 0)"
        ),
        "five bytes of Remaining Length wait for more": (
            'what = "Remaining Length of 5 bytes"', "break"
        ),
        "the cut packet is moved one byte short": (
            "while at < have:\n                    buf",
            "while at + 1 < have:\n                    buf",
        ),
        "a length that is not there is believed": (" or t > have:", ":"),
        "a large message ends one byte late": ("more = end - what", "more = end - what + 1"),
        "it keeps what it has read": (
            "s.asked = False", "s.asked = False\n        s.kept = getattr(s, 'kept', []) + [what]"
        ),
    },
    "writer": {
        "it waits for room without end": (
            "s.blocked = True\n                yield None", "s.blocked = True"
        ),
    },
    "chunks": {
        "the topic name of a large message is not kept": ("m.buf[at] = m.buf[m.topic_at]", "pass"),
    },
    "resend": {
        "after the peer has closed all go at once": ("            self._single = True\n", ""),
        "DUP goes to a broker that has forgotten": (
            "if self.sent >= 0 and s.same else", "if self.sent >= 0 else"
        ),
    },
    "requests": {
        "requests leave in another order": (
            "s.urgent.append(packet(r))", "s.urgent.insert(0, packet(r))"
        ),
    },
}  # fmt: skip

# What those of MQTT 5 find.
FAULTS_5: Faults = {
    "v5_walk": {
        "an unknown property is let pass": (
            "if i >= len(TABLE) or not TABLE[i] & packet:", "if i >= len(TABLE):"
        ),
        "a property may come twice": ("if seen >> i % 29 & 1:", "if False:"),
        "a flag may be anything": ("return buf[at] < 2 or i == _FORMAT", "return True"),
        "a text may be anything": ("return is_utf8(buf, at + 2, end)", "return True"),
        "a payload format must be 0 or 1": (" or i == _FORMAT", ""),
        "0 is let pass": ("return i not in _NOT_ZERO or not is_zero(buf, at, end)", "return True"),
        "0 with needless bytes is let pass": (
            "return number(buf, at, end) > 3", "return not is_zero(buf, at, end)"
        ),
    },
    "v5_connection": {
        "a property length of an acknowledgement may be short": (
            "if at + (n >> 2) != end:", "if at + (n >> 2) > end:"
        ),
        "AUTH is passed over": ('return "AUTH without an authentication method"', "return None"),
        "a broken rule is not answered": ("self._say_why(what)", "pass"),
        "flags are a protocol error": ('    ("flags", 0x81),\n', ""),
        "a session that is not there is malformed": ('return "session present"', 'return "flags"'),
        "any reason code is an error": (
            "if code < 128:\n            if code and", "if not code:\n            if code and"
        ),
        "a refused message stays": ("if not refused(self.client, first, pid, code):", "if True:"),
        "PUBREL with a reason code is not answered": (
            "return self.acknowledge(first, pid)\n        from .v5_reasons",
            "return None\n        from .v5_reasons",
        ),
        "an alias outlives its connection": ("if aliases and c.past:", "if False:"),
        "AUTH cuts a CONNECT that is half out": ("if c.blocked and not c.open:", "if False:"),
        "success of AUTH needs a method": (
            "if c.open and not code and end - at < 2:", "if False:"
        ),
        "a CONNACK that breaks a rule counts": (
            'if flags and (code or c.options["clean_session"]):', "if flags and code:"
        ),
    },
    "v5_router": {
        "a topic alias is passed over": ("and p.find(_ALIAS):", "and False:"),
        "subscriptions never have an identifier": ("if supported:", "if False:"),
        "subscriptions always have an identifier": ("if supported:", "if True:"),
        "identifiers are passed over": ("self._tagged = self._decides()", "self._tagged = False"),
        "properties that are remembered are those of any topic name": (
            "self._blocks[i][0:] = _EMPTY", "pass"
        ),
    },
    "v5_reasons": {
        "a refused message is not reported": ("c.on_dropped(pid, topic, reason)", "pass"),
    },
    "v5": {
        "Receive Maximum is not kept by publish": (
            "self.quota = min(self.slots, most)", "self.quota = self.slots"
        ),
    },
    "v5_resend": {
        "Receive Maximum is not kept after a loss": (
            "if at in s.offs and self._flying(at) >= s.quota:", "if False:"
        ),
        "what was accepted after a loss goes at once": ("c.past.extend()  #", "pass  #"),
        "messages that the broker does not take go again": (
            "            if reason:\n                set_aside(c, at, reason)\n", ""
        ),
    },
    "resend": {
        "what is set aside while CONNECT has not left goes all the same": (
            "if not (s.open and s.blocked):", "if not s.blocked:"
        ),
        "what is set aside waits for PINGRESP": (
            "        if s.at == self._mark:\n            return True\n", ""
        ),
        "where a packet was cut is remembered when it has left": (
            "self.passed()\n        if self.sent < 0:", "if self.sent < 0:"
        ),
        "a message in the place of the one before waits for itself": (
            "self._alone in s.ids:", "(self._alone > 0 and 0 in s.offs):"
        ),
    },
    "v5_alias": {
        "more aliases than the broker takes": (
            "if n > c.server.topic_alias_maximum:", "if n > 65535:"
        ),
    },
    "v5_chunks": {
        "properties of a large message stay where they are": ("p.buf[n] = p.buf[p.start]", "pass"),
        "more is kept of a large message than there is room for": (
            "self.blind = n + size - m.at > len(m.buf) // 2 - 1",
            "self.blind = n + size > have and n + size - m.at > len(m.buf) // 2 - 1",
        ),
    },
    "replies": {
        "answers belong to any request": (
            "message.properties.is_value(_CORRELATION, self._data[i])", "True"
        ),
        "requests are not given up": ("if left <= 0:", "if False:"),
    },
}  # fmt: skip

# What is wrong below MQTT, which shows over WebSocket alone.
BELOW: Faults = {
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
        "what is written is not masked": ("buf[off] ^ out[4 + (at & 3)]", "buf[off]"),
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

    def make(self, into: Path) -> Path:
        """Write the client with that fault; return the folder to import it from."""
        folder = into / "flatmq"
        shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / f"{self.module}.py"
        text = path.read_text()
        assert text.count(self.right) == 1, f"{self.name}: {text.count(self.right)} places"
        path.write_text(text.replace(self.right, self.wrong))
        return into


MUTANTS = [
    Mutant(name, finder, module, right, wrong)
    for finder, modules in (("4", FAULTS), ("5", OLD), ("5", FAULTS_5), ("websocket", BELOW))
    for module, faults in modules.items()
    for name, (right, wrong) in faults.items()
]
