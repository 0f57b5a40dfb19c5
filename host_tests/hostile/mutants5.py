"""Clients for MQTT 5 with one thing wrong each, which the cases that are kept have to find."""

from __future__ import annotations

from hostile.mutants import Mutant

MUTANTS_5 = {
    "an unknown property is let pass": Mutant(
        "v5_walk", "if i >= len(TABLE) or not TABLE[i] & packet:", "if i >= len(TABLE):"
    ),
    "a property may come twice": Mutant("v5_walk", "if seen >> i % 29 & 1:", "if False:"),
    "a flag may be anything": Mutant(
        "v5_walk", "return buf[at] < 2 or i == _FORMAT", "return True"
    ),
    "a text may be anything": Mutant("v5_walk", "return is_utf8(buf, at + 2, end)", "return True"),
    "a payload format must be 0 or 1": Mutant("v5_walk", " or i == _FORMAT", ""),
    "0 is let pass": Mutant(
        "v5_walk", "return i not in _NOT_ZERO or not is_zero(buf, at, end)", "return True"
    ),
    "0 with needless bytes is let pass": Mutant(
        "v5_walk", "return number(buf, at, end) > 3", "return not is_zero(buf, at, end)"
    ),
    "a property length of an acknowledgement may be short": Mutant(
        "v5_connection", "if at + (n >> 2) != end:", "if at + (n >> 2) > end:"
    ),
    "a topic alias is passed over": Mutant("v5_router", "and p.find(_ALIAS):", "and False:"),
    "AUTH is passed over": Mutant(
        "v5_connection",
        'return "AUTH without an authentication method"',
        "return None",
    ),
    "a broken rule is not answered": Mutant(
        "v5_connection", "            self._say_why(what)\n", "            pass\n"
    ),
    "flags are a protocol error": Mutant("v5_connection", '    ("flags", 0x81),\n', ""),
    "a session that is not there is malformed": Mutant(
        "v5_connection", 'return "session present"', 'return "flags"'
    ),
    "any reason code is an error": Mutant(
        "v5_connection",
        "if code < 128:\n            if code and",
        "if not code:\n            if code and",
    ),
    "a refused message stays": Mutant(
        "v5_connection",
        "        if not refused(self.client, first, pid, code):\n",
        "        if True:\n",
    ),
    "a refused message is not reported": Mutant(
        "v5_reasons", "        c.on_dropped(pid, topic, reason)\n", "        pass\n"
    ),
    "PUBREL with a reason code is not answered": Mutant(
        "v5_connection",
        "            return self.acknowledge(first, pid)\n        from .v5_reasons",
        "            return None\n        from .v5_reasons",
    ),
    "Receive Maximum is not kept by publish": Mutant(
        "v5", "        self.quota = min(self.slots, most)\n", "        self.quota = self.slots\n"
    ),
    "Receive Maximum is not kept after a loss": Mutant(
        "v5_resend", "if at in s.offs and self._flying(at) >= s.quota:", "if False:"
    ),
    "what was accepted after a loss goes at once": Mutant(
        "v5_resend", "        c.past.extend()  #", "        pass  #"
    ),
    "messages that the broker does not take go again": Mutant(
        "v5_resend", "            if reason:\n                set_aside(c, at, reason)\n", ""
    ),
    "what is set aside while CONNECT has not left goes all the same": Mutant(
        "resend", "if not (s.open and s.blocked):", "if not s.blocked:"
    ),
    "what is set aside waits for PINGRESP": Mutant(
        "resend", "        if s.at == self._mark:\n            return True\n", ""
    ),
    "an alias outlives its connection": Mutant(
        "v5_connection", "        if aliases and c.past:\n", "        if False:\n"
    ),
    "more aliases than the broker takes": Mutant(
        "v5_alias", "if n > c.server.topic_alias_maximum:", "if n > 65535:"
    ),
    "subscriptions never have an identifier": Mutant(
        "v5_router", "        if supported:\n", "        if False:\n"
    ),
    "subscriptions always have an identifier": Mutant(
        "v5_router", "        if supported:\n", "        if True:\n"
    ),
    "identifiers are passed over": Mutant(
        "v5_router", "self._tagged = self._decides()", "self._tagged = False"
    ),
    "properties that are remembered are those of any topic name": Mutant(
        "v5_router", "            self._blocks[i][0:] = _EMPTY\n", "            pass\n"
    ),
    "properties of a large message stay where they are": Mutant(
        "v5_chunks", "            p.buf[n] = p.buf[p.start]\n", "            pass\n"
    ),
    "more is kept of a large message than there is room for": Mutant(
        "v5_chunks",
        "self.blind = n + size - m.at > len(m.buf) // 2 - 1",
        "self.blind = n + size > have and n + size - m.at > len(m.buf) // 2 - 1",
    ),
    "AUTH cuts a CONNECT that is half out": Mutant(
        "v5_connection", "if c.blocked and not c.open:", "if False:"
    ),
    "success of AUTH needs a method": Mutant(
        "v5_connection", "if c.open and not code and end - at < 2:", "if False:"
    ),
    "a CONNACK that breaks a rule counts": Mutant(
        "v5_connection",
        'if flags and (code or c.options["clean_session"]):',
        "if flags and code:",
    ),
    "where a packet was cut is remembered when it has left": Mutant(
        "resend", "        self.passed()\n        if self.sent < 0:", "        if self.sent < 0:"
    ),
    "a message in the place of the one before waits for itself": Mutant(
        "resend", "self._alone in s.ids:", "(self._alone > 0 and 0 in s.offs):"
    ),
    "answers belong to any request": Mutant(
        "replies", "message.properties.is_value(_CORRELATION, self._data[i])", "True"
    ),
    "requests are not given up": Mutant(
        "replies", "                if left <= 0:\n", "                if False:\n"
    ),
}
