"""Hold what a client writes to the standard, also what is lost on its way.

The judge knows what the application has published, every byte that the client has written, and
every packet that it has read to its end.
"""

from collections import deque
from dataclasses import dataclass

import peer
from packets.strict import Packet, from_client, packet, split
from unit.both_versions import at_5

QUEUED, RELEASED, DONE = "queued", "released", "done"  # RELEASED: its PUBREC was read


class Fault(BaseException):
    """The client has broken a rule. It is no Exception, which the client would handle."""


def hold(condition: object, rule: str) -> None:
    """Raise Fault unless the condition holds."""
    if not condition:
        raise Fault(rule)


@dataclass
class Published:
    """A message that `publish` has accepted."""

    number: int
    topic: bytes
    payload: bytes
    qos: int
    pid: int
    state: str = QUEUED
    unsure: str = ""  # the state before an acknowledgement that the client has perhaps not handled
    ever: bool = False  # some of it was written, on whichever connection
    whole: bool = False  # all of it was written in the session that the broker has
    connection: int = -1  # the last one on which all of it was written
    released: int = -1  # the last connection on which PUBREL was written
    exact: bool = True  # the session was never in doubt while it was in flight
    dropped: bool = False
    leaving: int = -1  # the connection that was to take it when it was dropped
    first: int = 0  # the identifier that `publish` returned
    in_pieces: bool = False
    closes: int = 0  # connections that the broker closed while it was in flight
    proof: bool = False  # another message was acknowledged since the first of them

    def encoded(self, level: int) -> bytes:
        """Return its PUBLISH without DUP."""
        data = peer.publish(self.topic, self.payload, self.qos, self.pid)
        return at_5(split(data)[0][0]) if level == 5 else data


class Judge:
    """Follows one client over all its connections.

    A QoS 1 message on which the broker closes again and again may become a new one, behind the
    others. A PUBREC of an unknown identifier is answered.
    """

    def __init__(self, client_id: bytes, level: int, clean: bool) -> None:
        self.client_id = client_id
        self.level = level
        self.clean = clean
        self.messages: list[Published] = []
        self.by_payload: dict[bytes, Published] = {}
        self.arrived: set[bytes] = set()  # payloads that a handler has taken, or given up
        self.connection = -1
        self.doubt = False  # a CONNACK was not seen since the last one that was
        self.may_doubt = False  # CONNECT was sent since then
        self._in_hand: list[Published] = []  # acknowledged by what was read last
        self._begin()

    def _begin(self) -> None:
        self._written = b""
        self._read = b""
        self.greeted = self.left = False
        self.present = False
        self._asked: dict[int, str] = {}  # SUBSCRIBE and UNSUBSCRIBE without an answer
        self._last = -1  # number of the last message at QoS 1 and 2
        self._last_0 = -1
        # What the client owes for what it has read: (identifier, payload).
        self._acks: dict[str, deque[tuple[int, bytes]]] = {
            name: deque() for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")
        }

    @property
    def unsettled(self) -> list[Published]:
        """The messages at QoS 1 and 2 that are not acknowledged."""
        return [m for m in self.messages if m.qos and m.state != DONE]

    @property
    def open(self) -> list[Published]:
        """The messages at QoS 1 and 2 that the client may regard as not acknowledged."""
        return [m for m in self.messages if m.qos and (m.state != DONE or m.unsure)]

    @property
    def pending(self) -> tuple[int, int]:
        """Return the least and the most that `pending` of the client may be."""
        open_ones = [m for m in self.messages if m.state != DONE]
        # The broker has a released one, so the client may give up waiting for PUBCOMP.
        left = [m for m in open_ones if m.state == RELEASED and m.closes > 1]
        unsure = [m for m in self.messages if m.state == DONE and m.unsure]
        return len(open_ones) - len(left), len(open_ones) + len(unsure)

    @property
    def owes(self) -> list[str]:
        """The names of the packets that the client has still to send for those that it read."""
        return [name for name, owed in self._acks.items() if owed]

    # What the application does

    def published(
        self, topic: bytes, payload: bytes, qos: int, pid: int, in_pieces: bool = False
    ) -> None:
        """Note a message that `publish` has accepted."""
        hold(bool(pid) == bool(qos), f"publish at QoS {qos} has returned {pid}")
        taken = {m.pid for m in self.unsettled} | self._asked.keys()
        hold(not pid or pid not in taken, f"packet identifier {pid} is in use [MQTT-2.3.1-2]")
        message = Published(
            len(self.messages), topic, payload, qos, pid, first=pid, in_pieces=in_pieces
        )
        self.messages.append(message)
        self.by_payload[payload] = message

    def dropped(self, message: Published, offered: bytes = b"") -> None:
        """Note a message that was set aside.

        What the network was `offered`, and has not taken, is written all the same.
        """
        message.dropped = True
        message.state = DONE
        data = message.encoded(self.level)[1:]
        if data in self._written + offered or (offered and data.endswith(offered)):
            message.leaving = self.connection

    # What the network sees

    def opened(self) -> None:
        """Begin with a connection."""
        self.connection += 1
        self._begin()

    def closed(self, by_peer: bool) -> None:
        """Handle the end of a connection."""
        cut = self._written
        for m in self.messages:
            if m.state == RELEASED and by_peer and self.connection in (m.released, m.connection):
                m.closes += 1
            if m.state != QUEUED:
                continue
            data = m.encoded(self.level)
            begun = cut and cut[0] & 0xF7 == data[0] and data[1:].startswith(cut[1:])
            m.ever = m.ever or bool(begun)
            # Of a message in pieces the network may have been offered the first one.
            begun = begun or (m.in_pieces and self.greeted)
            if by_peer and (begun or m.connection == self.connection):
                m.closes += 1
        self._written = b""
        self._in_hand.clear()  # who knows how many of them the client has handled

    def handled(self) -> None:
        """Note that the client has handled all packets that it has read: it reads on."""
        for message in self._in_hand:
            message.unsure = ""
        self._in_hand.clear()

    def in_doubt(self, reached: bool) -> None:
        """Note a CONNECT whose CONNACK the client will not see; `reached` the broker or not."""
        self.doubt = self.doubt or reached
        self.may_doubt = True
        for message in self.open:
            message.exact = False

    def wrote(self, data: bytes) -> None:
        """Judge bytes that the client has written."""
        packets, self._written = split(self._written + data)
        for raw in packets:
            found = from_client(raw.first, raw.body, self.level)
            hold(not self.left, f"{found.name} after DISCONNECT [MQTT-3.14.4-2]")
            if found.name == "CONNECT":
                self._connect(found)
            else:
                hold(self.greeted, f"{found.name} before CONNACK")
                getattr(self, f"_{found.name.lower()}")(found)

    def read(self, data: bytes) -> list[Packet]:
        """Follow bytes that the client has read; return the packets that they complete."""
        packets, self._read = split(self._read + data)
        found = [packet(raw.first, raw.body, self.level) for raw in packets]
        for each in found:
            self._was_read(each)
        return found

    def _was_read(self, p: Packet) -> None:
        if p.name == "CONNACK":
            self.greeted = True
            self.present = bool(p.present)
            reached, either = self.doubt, self.may_doubt
            self.doubt = self.may_doubt = False
            for m in self.open:
                if not self.present:
                    m.whole = False
                    m.exact = m.exact and not m.ever
                if not self.present or reached:  # as before PUBREC, on all later connections
                    m.state = DONE if m.state == DONE else QUEUED
                if m.unsure or (either and m.state == RELEASED):
                    m.unsure = QUEUED if either or not self.present else m.unsure
        elif p.name == "PUBLISH" and p.qos:
            self._acks[("", "PUBACK", "PUBREC")[p.qos]].append((p.pid, p.payload))
        elif p.name == "PUBREL":
            self._acks["PUBCOMP"].append((p.pid, b""))
        elif p.name in ("SUBACK", "UNSUBACK"):
            self._asked.pop(p.pid, None)
        elif p.name in ("PUBACK", "PUBREC", "PUBCOMP"):
            self._acknowledged(p)

    def _acknowledged(self, p: Packet) -> None:
        for m in self.unsettled:
            if m.pid != p.pid:
                continue
            if p.name == ("PUBACK" if m.qos == 1 else "PUBCOMP"):
                self._advance(m, DONE)
                for other in self.unsettled:
                    other.proof = other.proof or other.closes > 0
            elif p.name == "PUBREC" and m.qos == 2:
                self._advance(m, RELEASED)
                self._acks["PUBREL"].append((p.pid, b""))
            return
        if p.name == "PUBREC":
            self._acks["PUBREL"].append((p.pid, b""))

    def _advance(self, m: Published, state: str) -> None:
        m.unsure = m.unsure or m.state
        m.state = state
        self._in_hand.append(m)

    def _is_back(self, m: Published, states: tuple[str, ...]) -> None:
        """Note that the client has not handled the acknowledgement of a message."""
        if m.unsure in states and m.connection != self.connection:
            m.state, m.unsure = m.unsure, ""

    # Packets of the client

    def _connect(self, p: Packet) -> None:
        hold(not self.greeted, "a second CONNECT [MQTT-3.1.0-2]")
        connect = p.connect
        hold(connect, "CONNECT without fields")
        hold(connect.client_id == self.client_id, "CONNECT: client identifier")
        hold(bool(connect.clean_start) == self.clean, "CONNECT: clean session")

    def _publish(self, p: Packet) -> None:
        m = self.by_payload.get(p.payload)
        hold(m, f"PUBLISH of {p.payload!r}, which was not published")
        hold((p.topic, p.qos) == (m.topic, m.qos), f"PUBLISH {p} is not {m}")
        if m.dropped:
            hold(m.leaving == self.connection, f"{m} was set aside")
            return
        if not p.qos:
            hold(m.state != DONE, f"{m} is written again")
            hold(m.number > self._last_0 or (m.in_pieces and m.closes), f"{m} is out of order")
            self._last_0 = max(m.number, self._last_0)
            m.state = DONE
            return
        self._is_back(m, (QUEUED,))
        hold(m.state != DONE, f"{m} was acknowledged")
        hold(m.connection != self.connection, f"{m} again on one connection [MQTT-4.4.0-1]")
        if p.pid != m.pid:
            hold(m.closes > 1 and m.qos == 1, f"{m} has got identifier {p.pid}")
            hold(not p.dup, f"{m} is new with identifier {p.pid}, and has DUP")
            hold(p.pid not in {o.pid for o in self.unsettled}, f"{p.pid} is in use")
            m.pid = p.pid
            m.whole = m.ever = False
        hold(p.pid not in self._asked, f"{p.pid} is that of a {self._asked.get(p.pid)}")
        hold(m.state == QUEUED, f"{m} after PUBREC")
        if not self.present or not (m.ever or m.in_pieces):  # the latter may have been offered
            hold(not p.dup, f"{m} is new, and has DUP [MQTT-3.3.1-1]")
        elif m.whole:
            hold(p.dup, f"{m} is sent again without DUP [MQTT-3.3.1-1]")
        if m.closes < (1 if m.in_pieces else 2):
            hold(m.number > self._last, f"{m} is out of order [MQTT-4.6.0-1]")
            self._last = m.number
        m.ever = m.whole = True
        m.connection = self.connection

    def _pubrel(self, p: Packet) -> None:
        owed = self._acks["PUBREL"]
        m = next((m for m in self.unsettled if m.pid == p.pid), None)
        if any(pid == p.pid for pid, _ in owed):
            hold(owed.popleft()[0] == p.pid, "PUBREL in another order than PUBREC [MQTT-4.6.0-4]")
        else:
            if any(each.dropped and each.pid == p.pid for each in self.messages):
                return
            if not m:
                m = next((m for m in self.open if m.pid == p.pid), None)
                hold(m, f"PUBREL {p.pid} of no message")
                m.state, m.unsure = RELEASED, ""
            hold(m and m.state == RELEASED, f"PUBREL {p.pid} of no message past PUBREC")
            hold(m.released != self.connection, f"PUBREL of {m} again on one connection")
        if m:
            m.released = self.connection

    def _acknowledges(self, p: Packet) -> None:
        owed = self._acks[p.name]
        hold(owed, f"{p.name} {p.pid} of nothing")
        pid, payload = owed.popleft()
        hold(pid == p.pid, f"{p.name} {p.pid} before {pid} [MQTT-4.6.0-2] [MQTT-4.6.0-3]")
        if payload:
            hold(payload in self.arrived, f"{p.name} of {payload!r} before its handler took it")

    _puback = _pubrec = _pubcomp = _acknowledges

    def _request(self, p: Packet) -> None:
        taken = {m.pid for m in self.unsettled} | self._asked.keys()
        hold(p.pid not in taken, f"{p.name}: packet identifier {p.pid} is in use [MQTT-2.3.1-2]")
        self._asked[p.pid] = p.name

    _subscribe = _unsubscribe = _request

    def _pingreq(self, p: Packet) -> None:
        """PINGREQ may come at any time."""

    def _disconnect(self, p: Packet) -> None:
        self.left = True
