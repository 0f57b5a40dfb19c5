"""Handle an MQTT 5 connection: CONNACK with properties, acknowledgements, DISCONNECT and AUTH."""

from . import port as clock
from . import writer
from .connection import Connection
from .port import const, ticks_add, ticks_diff
from .reader import LATER
from .v5_walk import View, broken, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .v5 import Client5

# Packets with properties: see v5_walk.TABLE.
_CONNACK = const(8)
_ANSWER = const(32)
_DISCONNECT = const(64)
_AUTH = const(128)

_CONTINUE = const(0x18)  # reason codes
_TAKEN_OVER = const(0x8E)
_OTHER_VERSION = const(0x84)
# Reason codes of DISCONNECT with which a broker may refuse a message or a topic filter.
_ACCUSING = b"\x80\x81\x82\x83\x87\x8f\x90\x95\x97\x99\x9a\x9b\x9e\xa1\xa2"
_NEVER = const(268435455)  # ms, 3 days


class Connection5(Connection):
    """The connection of an MQTT 5 client."""

    client: "Client5"

    def __init__(self, client: "Client5") -> None:
        Connection.__init__(self, client)
        self.said = View(client.rx)  # the properties of the packet being handled
        self._unanswered = 0  # connections in a row that ended before CONNACK
        self.replies: Any = None  # Replies, after the first request
        self.aliases = 0  # topic aliases in use on this connection

    def greet(self, handler: "Any" = None) -> None:
        """Start to send CONNECT over the stream and to read the answer."""
        c = self.client
        hello = c.hello
        if hello is None:
            from .v5_setup import forget, hello_of

            c.hello = hello_of(c.options, True)
            forget()
        Connection.greet(self, self.packet)
        c.hello = hello

    def send(self, packet: bytes) -> None:
        """Send an AUTH packet. Before CONNACK nothing else is written."""
        c = self.client
        if c.open:
            c.urgent.append(packet)
            c.plain = False
        else:
            c.outgoing = writer.writing(c, self.stream.write, packet)
        c.queued = True

    # Incoming packets

    def packet(self, first: int, at: int, end: int) -> "str | None":
        """Handle a packet other than PUBLISH whose first byte is `first`.

        Its body is in the receive buffer from `at` to `end`. Returns None, LATER, or the
        rule that it breaks.
        """
        c = self.client
        if first == 0x40 or first == 0x50 or first == 0x62 or first == 0x70:
            if first & 0x30 and first != 0x70 and c.answers > c.room:
                return LATER
            if end - at != 2:
                return self._long(first, at, end)
            at = c.rx[at] << 8 | c.rx[at + 1]
            return self.acknowledge(first, at)
        if first == 0xD0:
            return None if at == end else "length"
        if first == 0x20:
            return self.connack(at, end)
        if first == 0xE0:
            return self.ended(at, end)
        if first == 0xF0:
            return self._auth(at, end)
        if first != 0x90 and first != 0xB0:
            return "type or flags"
        return self._answered(first, at, end)

    def acknowledge(self, first: int, pid: int) -> "str | None":
        """Handle a PUBACK, PUBREC, PUBREL or PUBCOMP that reports success."""
        c = self.client
        if not pid:
            return "packet identifier 0"
        if first == 0x62:
            if pid in c.received:
                c.received[c.received.index(pid)] = 0
            c.answer(0x70, pid)
        elif not c.settle(first, pid):
            c.stats.strays += 1
            if c.gone:
                self._stray(first, pid)
        elif c.large:
            c.allot()
        return None

    def _stray(self, first, pid):
        """Handle the answer to a message that was dropped in flight.

        A PUBREC is answered with PUBREL, because the broker would otherwise hold the place
        of that message.
        """
        c = self.client
        if pid in c.gone:
            if first == 0x50:
                c.answer(0x62, pid)
            else:
                c.gone.remove(pid)
                c.allot()

    def _long(self, first, at, end):
        """Handle one of these packets with a reason code."""
        if end - at < 3:
            return "length"
        if end - at > 3:
            end = self.properties(at + 3, end, _ANSWER)
            if end:
                return end
        end = self.client.rx
        return self._judge(first, end[at] << 8 | end[at + 1], end[at + 2])

    def _judge(self, first, pid, code):
        """Handle an acknowledgement with reason code `code`."""
        if code < 128:
            if code and (code != 0x10 or first > 0x50):
                return "reason code"
            return self.acknowledge(first, pid)
        if not pid:
            return "packet identifier 0"
        if first == 0x62:  # the broker has forgotten the identifier: there is nothing to keep
            return self.acknowledge(first, pid)
        from .v5_reasons import refused

        if not refused(self.client, first, pid, code):
            self.client.stats.strays += 1
            if pid in self.client.gone:
                self.client.gone.remove(pid)
        self.client.allot()
        return None

    def properties(self, at: int, end: int, packet: int) -> "str | None":
        """Check properties, and put them into `said`.

        Their length is at `at`, and they end at `end`. Returns the rule that they break,
        else None.
        """
        n = number(self.client.rx, at, end)
        if n < 0:
            return "property length"
        at += 1 + (n & 3)
        if at + (n >> 2) != end:
            return "property length"
        self.said.start = at
        self.said.stop = end
        return broken(self.client.rx, at, end, packet)

    def _answered(self, first, at, end):
        """Handle a SUBACK or UNSUBACK."""
        rx = self.client.rx
        if end - at < 3:
            return "length"
        if not rx[at] and not rx[at + 1]:
            return "packet identifier 0"
        n = number(rx, at + 2, end)
        codes = at + 3 + (n & 3) + (n >> 2)
        if n < 0 or codes > end:
            return "property length"
        what = self.properties(at + 2, codes, _ANSWER)
        if what:
            return what
        for i in range(codes, end):
            n = rx[i]
            if n < 128 and n > 2 if first == 0x90 else n < 128 and n != 0 and n != 0x11:
                return "reason codes"
        if codes == end:
            return "reason codes"
        done = self.client.load().answered(first, bytes(rx[at : at + 2] + rx[codes:end]))
        if done is False:
            self.client.stats.strays += 1
        return done if isinstance(done, str) else None

    def connack(self, at: int, end: int) -> "str | None":
        """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
        c = self.client
        if c.state != "greeting":
            return "a second CONNACK"
        if end - at < 2:
            return "length"
        flags = c.rx[at]
        code = c.rx[at + 1]
        self.said.stop = self.said.start  # none
        if end - at == 2:
            # A broker that speaks only 3.1.1 answers with a 3.1.1 CONNACK.
            if not code:
                return "length"
        else:
            what = self.properties(at + 2, end, _CONNACK)
            if what:
                return what
            if code and code < 128:
                return "reason code"
        if flags > 1:
            return "flags"
        if flags and (code or c.options["clean_session"]):
            return "session present"
        if code:
            c.server.read(self.said)
            self._refused(code, end - at == 2)
            return None
        if self.said.get(0x27, 4) < 4:
            return "Maximum Packet Size below 4"  # no PUBACK
        if c.options["auth"]:
            from .v5_auth import answer

            if c.blocked:  # its limits would come too late for the rest of that packet
                return "CONNACK before CONNECT or AUTH has left"
            what = answer(self, 0, self.said)
            if what or not self.stream:
                return what
        c.server.read(self.said)
        self._unanswered = 0
        c.options["falls_back"] = False
        if c.server.client_id is not None and not c.options["client_id"]:
            self._rename(c.server.client_id)
        self.interval = c.options["keepalive"] * 750 or _NEVER
        if c.server.keep_alive >= 0:
            self.interval = c.server.keep_alive * 750 or _NEVER
        if c.open is None:  # memory was short when the last connection ended
            self._keep()
            writer.lost(c)
        most = c.server.maximum_packet_size
        c.strict = not c.server.retain or 0 < most < c.size
        c.max_qos = min(c.options["max_qos"], c.server.max_qos)
        c.allot()
        if c.pending and (
            c.strict or c.max_qos < 2 or c.past or c.count > c.quota or (c.large and c.large.waits)
        ):
            from .v5_resend import admit

            admit(c, flags)
        self.aliases = 0  # aliases end with their connection
        router: Any = c.router
        if router:
            router.identify(c.server.identifiers)
            if 0 < most < c.size and (router.subscriptions or router.requests):
                from .v5_oversized import refuse

                refuse(router, most, flags)
        return self.greeted(flags, 0)

    def _refused(self, code, is_old):
        c = self.client
        if c.options["falls_back"] and (code == _OTHER_VERSION or (is_old and code == 1)):
            self._unanswered = 2
        if is_old:
            what = f"CONNACK of MQTT 3.1.1: return code {code}"
        else:
            from .v5_reasons import text

            what = text("CONNACK", code, c)
        self.lost(None, "refused", what, code)

    def _rename(self, client_id):
        """Use the client identifier assigned by the broker, from the next connection on."""
        from .v5_setup import change

        change(self.client, {"client_id": client_id})

    def ended(self, at: int, end: int) -> "str | None":
        """Handle DISCONNECT from the broker (section 3.14), and end the connection."""
        c = self.client
        self.said.stop = self.said.start
        code = 0 if at == end else c.rx[at]
        if end - at > 1:
            what = self.properties(at + 1, end, _DISCONNECT)
            if what:
                return what
        c.server.note(self.said)
        from .v5_reasons import text

        # 0 stands for the end of the stream: the packet sent last may have been the cause.
        self.lost(0 if code in _ACCUSING else None, "closed", text("DISCONNECT", code, c), code)
        return None

    def _auth(self, at, end):
        """Handle AUTH (section 3.15)."""
        c = self.client
        if not c.options["auth"]:
            return "AUTH without an authentication method"
        if c.blocked and not c.open:
            return "AUTH before CONNECT has left"
        code = 0 if at == end else c.rx[at]
        if c.open and not code and end - at < 2:
            return None  # success, in the short form
        self.said.stop = self.said.start
        if end - at > 1:
            what = self.properties(at + 1, end, _AUTH)
            if what:
                return what
        if code != _CONTINUE and (code or not c.open):
            return "reason code"
        from .v5_auth import answer

        return answer(self, code, self.said)

    # The end of a connection

    def close(self) -> None:
        """Close the link: see `Connection.close`.

        Until the next CONNACK, as many messages are accepted as there are records.
        """
        Connection.close(self)
        c = self.client
        c.gone.clear()
        c.quota = c.slots
        self.aliases = 0

    def lost(self, error: "Any", kind: str, what: str, code: int = 0) -> None:
        """Handle a connection that ended or could not be made: see `Connection.lost`.

        If the broker broke a rule, a DISCONNECT says which.
        """
        c = self.client
        greeting = c.state == "greeting"
        if (kind == "protocol" or kind == "resource") and self.stream and error is None:
            self._say_why(what)
        aliases = self.aliases
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self._keep()
        except Exception:  # no memory: Connection.lost says so, and CONNACK does the rest
            pass
        Connection.lost(self, error, kind, what, code)
        if code == _TAKEN_OVER and kind == "closed":
            # Two clients with the same identifier would otherwise keep ending each other.
            c.due = ticks_add(clock.ticks_ms(), c.options["retry_max_ms"])
        if c.options["falls_back"]:
            # Ctrl-C and a failed TLS handshake say nothing about the broker's version.
            e = c.error
            if greeting and error is not None and e and e.kind == "closed":
                self._unanswered += 1
            elif self._unanswered < 2:
                self._unanswered = 0
            if self._unanswered == 2:
                from .v5_fallback import fall_back

                fall_back(c)
        if aliases and c.past:
            try:
                from .v5_resend import without_aliases
            except Exception:  # no memory: CONNACK does it
                return
            without_aliases(c)

    def _keep(self):
        """Prepare to resend the packets in the ring by the rules of MQTT 5."""
        c = self.client
        if c.open is not False and c.pending and not c.past:
            from .v5_resend import Resend5

            c.past = Resend5(c)

    def _say_why(self, what):
        """Send DISCONNECT with a reason code, unless only part of another packet has left."""
        c = self.client
        if c.blocked or (c.large and c.large.begun) or not (c.open or c.state == "greeting"):
            return
        if "Packet Size" in what:  # DISCONNECT may be larger than that
            return
        code = 0x82
        for text, reason in _CODES:
            if text in what:
                code = reason
                break
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self.stream.write(bytes((0xE0, 1, code)), 0, 3)
        except Exception:
            pass

    def late(self) -> None:
        """Do what is due by the clock: see `Connection.late`. Also time out requests."""
        Connection.late(self)
        if self.replies:
            left = self.replies.late()
            c = self.client
            if c.connected and 0 <= left < ticks_diff(c.due, c.now):
                c.due = ticks_add(c.now, left)


# Reason codes of DISCONNECT, by words in the text of the broken rule: 0x81 is a malformed packet.
_CODES = (
    ("rx_size", 0x95),
    ("incoming", 0x93),
    ("length", 0x81),
    ("Length", 0x81),
    ("unknown", 0x81),
    ("not allowed here", 0x81),
    ("whole", 0x81),
    ("text of", 0x81),
    ("flags", 0x81),
    ("QoS 3", 0x81),
    ("not a topic name", 0x81),
    ("shorter", 0x81),
    ("no packet identifier", 0x81),
    ("alias", 0x94),
)
