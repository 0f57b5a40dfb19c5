"""A strict decoder: all that a server may send, and all that a client may send, by version.

Written from the OASIS standards of MQTT 3.1.1 and 5 (and 3.1 where a server differs), apart from
the client and with nothing of it: it has all bytes of a packet before it looks at any of them, and
lets Python judge UTF-8. It judges each packet by itself; what CONNECT and CONNACK rule out for a
connection is in `agreed`.
"""

from typing import NamedTuple

from packets.fields import (
    MALFORMED,
    PAYLOAD_FORMAT_INVALID,
    PROTOCOL_ERROR,
    WRONG_VERSION,
    Broken,
    Reader,
    integer,
    topic_name,
    valid_text,
)
from packets.properties import ACKS, CLIENT, NONE, SERVER, WILL, Id, Properties, read

__all__ = ["Broken", "Connect", "Filter", "Header", "Packet", "Raw", "Will"]
__all__ += ["first_byte", "from_client", "header", "matches", "packet", "split"]


class Header(NamedTuple):
    """A fixed header (section 2.1)."""

    first: int
    size: int  # its own bytes
    length: int  # the Remaining Length

    @property
    def total(self) -> int:
        """Bytes of the whole packet."""
        return self.size + self.length


class Raw(NamedTuple):
    """A packet as it came: its first byte and what follows the Remaining Length."""

    first: int
    body: bytes

    @property
    def pid(self) -> int:
        """The packet identifier of anything but a PUBLISH."""
        return int.from_bytes(self.body[:2], "big")


class Will(NamedTuple):
    topic: bytes
    payload: bytes
    qos: int = 0
    retain: int = 0
    properties: Properties = NONE


class Connect(NamedTuple):
    """The fields of a CONNECT beside its properties."""

    client_id: bytes
    clean_start: int = 1
    keepalive: int = 0
    will: Will | None = None
    username: bytes | None = None
    password: bytes | None = None


class Filter(NamedTuple):
    """A topic filter with its subscription options; UNSUBSCRIBE has no options."""

    topic: bytes
    qos: int = 0
    no_local: int = 0
    as_published: int = 0  # Retain As Published
    handling: int = 0  # Retain Handling

    @property
    def options(self) -> int:
        return self.qos | self.no_local << 2 | self.as_published << 3 | self.handling << 4


class Packet(NamedTuple):
    """A packet that breaks no rule by itself. A field that it does not have has its default.

    `codes` are the reason codes of SUBACK and UNSUBACK, `code` is that of all others.
    """

    name: str
    pid: int = 0
    topic: bytes = b""
    payload: bytes = b""
    qos: int = 0
    retain: int = 0
    dup: int = 0
    present: int = 0
    code: int = 0
    codes: bytes = b""
    properties: Properties = NONE
    connect: Connect | None = None
    filters: tuple[Filter, ...] = ()


NAMES = ("", "CONNECT", "CONNACK", "PUBLISH", *ACKS, "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE")
NAMES += ("UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH")
FLAGS = {"PUBREL": 2, "SUBSCRIBE": 2, "UNSUBSCRIBE": 2}  # table 2-2; 0 for the others

_BOTH_WAYS = {"PUBLISH", *ACKS, "DISCONNECT", "AUTH"}
SENT_BY = {
    SERVER: _BOTH_WAYS | {"CONNACK", "SUBACK", "UNSUBACK", "PINGRESP"},
    CLIENT: _BOTH_WAYS | {"CONNECT", "SUBSCRIBE", "UNSUBSCRIBE", "PINGREQ"},
}
_ONLY_AT_5 = {(SERVER, "DISCONNECT"), (SERVER, "AUTH"), (CLIENT, "AUTH")}

_REFUSED = bytes.fromhex("80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f")
_UNTAKEN = bytes.fromhex("80 83 87 90 91 97 99")
_DISCONNECTS = bytes.fromhex("80 81 82 83 90 93 94 95 96 97 98 99")  # that either may send
# Tables 3-13 and 2-6 differ: only the second has 0x8C, and 0x00 from a server. Both are taken.
_FROM_SERVER = bytes.fromhex("87 89 8b 8c 8d 8e 8f 9a 9b 9c 9d 9e 9f a0 a1 a2")
CODES: dict[tuple[str, str], bytes] = {
    (SERVER, "CONNACK"): b"\x00" + _REFUSED,
    (SERVER, "PUBACK"): b"\x00\x10" + _UNTAKEN,
    (SERVER, "PUBREC"): b"\x00\x10" + _UNTAKEN,
    (SERVER, "PUBREL"): b"\x00\x92",
    (SERVER, "PUBCOMP"): b"\x00\x92",
    (SERVER, "SUBACK"): bytes.fromhex("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    (SERVER, "UNSUBACK"): bytes.fromhex("00 11 80 83 87 8f 91"),
    (SERVER, "DISCONNECT"): b"\x00" + _DISCONNECTS + _FROM_SERVER,
    (SERVER, "AUTH"): b"\x00\x18",
    (CLIENT, "PUBACK"): b"\x00" + _UNTAKEN,  # 0x10 is the server's alone
    (CLIENT, "PUBREC"): b"\x00" + _UNTAKEN,
    (CLIENT, "PUBREL"): b"\x00\x92",
    (CLIENT, "PUBCOMP"): b"\x00\x92",
    (CLIENT, "DISCONNECT"): b"\x00\x04" + _DISCONNECTS,
    (CLIENT, "AUTH"): b"\x18\x19",
}
_GRANTED_4 = b"\0\1\2\x80"
_ANY = bytes(range(256))  # a client may believe any return code of CONNACK in 3.1.1


def header(data: bytes | bytearray, tolerant: bool = True) -> Header | None:
    """The fixed header at the start of `data`; None if it is cut.

    `tolerant`: its length may have needless bytes.
    """
    found = integer(data, 1, tolerant) if data else None
    return Header(data[0], found[1], found[0]) if found else None


def split(data: bytes) -> tuple[list[Raw], bytes]:
    """The whole packets at the start of `data`, and the rest."""
    packets: list[Raw] = []
    while True:
        head = header(data, tolerant=False)
        if head is None or len(data) < head.total:
            return packets, data
        packets.append(Raw(head.first, data[head.size : head.total]))
        data = data[head.total :]


def first_byte(first: int, level: int = 5, sender: str = SERVER) -> str:
    """The name of the packet that begins so."""
    name, flags = NAMES[first >> 4], first & 15
    if not name:
        raise Broken("type 0 is reserved")
    if name not in SENT_BY[sender] or (level < 5 and (sender, name) in _ONLY_AT_5):
        raise Broken(f"no {sender} sends {name} at level {level}", PROTOCOL_ERROR)
    if name == "PUBLISH":
        if flags & 6 == 6:
            raise Broken("PUBLISH: QoS 3 [MQTT-3.3.1-4]")
        # Against a server this is not held: brokers pass DUP on, and it harms nobody.
        if sender == CLIENT and flags & 14 == 8:
            raise Broken("PUBLISH: DUP at QoS 0 [MQTT-3.3.1-2]", PROTOCOL_ERROR)
    elif flags != FLAGS.get(name, 0) and (level, first) != (3, 0x6A):  # 3.1: PUBREL with DUP
        raise Broken(f"{name}: flags {flags:#x} [MQTT-2.1.3-1]")
    return name


def from_client(first: int, body: bytes, level: int = 5) -> Packet:
    return packet(first, body, level, CLIENT)


def packet(
    first: int, body: bytes, level: int, sender: str = SERVER, tolerant: bool = False,
    any_name: bool = False,
) -> Packet:  # fmt: skip
    """The packet of that first byte and body. The body of a PUBLISH may lack some of its payload.

    `tolerant`: what a client may let pass, because it leaves no doubt, breaks no rule: an integer
    with needless bytes, a reason code of 0x80 or more that this packet does not have, which says
    failure all the same (section 2.4), and any reason code of DISCONNECT, which is the end.
    `any_name`: a PUBLISH may have a topic name that is not valid.
    """
    name = first_byte(first, level, sender)
    reader = Reader(body, tolerant, level)
    if name == "PUBLISH":
        found = _publish(first, reader, sender, any_name)
    elif name == "CONNECT":
        found = _connect(reader)
    elif name == "CONNACK":
        found = _connack(reader)
    elif name in ACKS:
        found = _ack(name, reader, sender)
    elif name in ("SUBSCRIBE", "UNSUBSCRIBE"):
        found = _request(name, reader)
    elif name in ("SUBACK", "UNSUBACK"):
        found = _answer(name, reader)
    elif level > 4 and name in ("DISCONNECT", "AUTH"):
        found = _ending(name, reader, sender)
    else:
        found = Packet(name)
    reader.end(name)
    return found


def _pid(reader: Reader, name: str) -> int:
    pid = reader.number(2, f"{name}: packet identifier")
    if not pid:
        raise Broken(f"{name}: packet identifier 0 [MQTT-2.2.1-3]", PROTOCOL_ERROR)
    return pid


def _code(reader: Reader, name: str, sender: str) -> int:
    code = reader.number(1, f"{name}: reason code")
    if reader.tolerant and (name == "DISCONNECT" or (name != "AUTH" and code > 127)):
        return code
    allowed = CODES[sender, name]
    if reader.level < 5:
        allowed = _GRANTED_4 if name == "SUBACK" else _ANY
    if code not in allowed:
        raise Broken(f"{name}: no {sender} sends reason code {code:#04x}", PROTOCOL_ERROR)
    return code


def _publish(first: int, reader: Reader, sender: str, any_name: bool) -> Packet:
    topic = reader.data("PUBLISH: topic name")
    qos = first >> 1 & 3
    pid = _pid(reader, "PUBLISH") if qos else 0
    more = read(reader, "PUBLISH", sender)
    if not any_name and (topic or more.first(Id.TOPIC_ALIAS) is None):
        topic_name(topic, "PUBLISH: topic name")
    payload = reader.rest()
    if sender == CLIENT:  # a client may believe a server
        _payload_format(more, payload)
    flags = {"retain": first & 1, "dup": first >> 3 & 1}
    return Packet("PUBLISH", pid, topic, payload, qos, **flags, properties=more)


def _payload_format(properties: Properties, payload: bytes) -> None:
    if properties.first(Id.PAYLOAD_FORMAT):
        try:
            payload.decode("utf-8", "strict")
        except UnicodeDecodeError:
            raise Broken(
                "a payload that is said to be UTF-8, and is not", PAYLOAD_FORMAT_INVALID
            ) from None


def _connect(reader: Reader) -> Packet:
    protocol = reader.data("CONNECT: protocol name")
    level = reader.number(1, "CONNECT: protocol version")
    if protocol != b"MQTT" or level != reader.level:
        raise Broken(f"CONNECT: {protocol!r} {level} [MQTT-3.1.2-2]", WRONG_VERSION)
    flags = reader.number(1, "CONNECT: flags")
    if flags & 1:
        raise Broken("CONNECT: the reserved flag [MQTT-3.1.2-3]")
    if level == 4 and flags & 0xC0 == 0x40:
        raise Broken("CONNECT: a password without a user name [MQTT-3.1.2-22]")
    keepalive = reader.number(2, "CONNECT: keep alive")
    more = read(reader, "CONNECT", CLIENT)
    unnamed = more.first(Id.AUTHENTICATION_METHOD) is None
    if unnamed and more.first(Id.AUTHENTICATION_DATA) is not None:
        raise Broken("CONNECT: authentication data without a method", PROTOCOL_ERROR)
    client_id = reader.text("CONNECT: client identifier")
    if level == 4 and not client_id and not flags & 2:
        raise Broken("CONNECT: an empty identifier of a kept session [MQTT-3.1.3-8]", 0x85)
    will = None
    if flags & 4:
        will = _will(reader, flags >> 3 & 3, flags >> 5 & 1)
    elif flags & 0x38:
        raise Broken("CONNECT: QoS or RETAIN of no will [MQTT-3.1.2-11] [MQTT-3.1.2-13]")
    username = reader.text("CONNECT: user name") if flags & 0x80 else None
    password = reader.data("CONNECT: password") if flags & 0x40 else None
    connect = Connect(client_id, flags >> 1 & 1, keepalive, will, username, password)
    return Packet("CONNECT", properties=more, connect=connect)


def _will(reader: Reader, qos: int, retain: int) -> Will:
    if qos == 3:
        raise Broken("CONNECT: will QoS 3 [MQTT-3.1.2-12]")
    properties = read(reader, WILL, CLIENT)
    topic = topic_name(reader.data("CONNECT: will topic"), "CONNECT: will topic")
    payload = reader.data("CONNECT: will payload")
    _payload_format(properties, payload)
    return Will(topic, payload, qos, retain, properties)


def _connack(reader: Reader) -> Packet:
    flags = reader.number(1, "CONNACK: flags")
    if reader.level == 3:  # reserved there
        flags = 0
    if flags > 1:
        raise Broken("CONNACK: reserved flags [MQTT-3.2.2-1]")
    code = _code(reader, "CONNACK", SERVER)
    if flags and code:
        raise Broken("CONNACK: session present, and refused [MQTT-3.2.2-6]", PROTOCOL_ERROR)
    return Packet("CONNACK", present=flags, code=code, properties=read(reader, "CONNACK", SERVER))


def _ack(name: str, reader: Reader, sender: str) -> Packet:
    pid = _pid(reader, name)
    code, more = 0, NONE
    if reader.level > 4 and reader.left:
        code = _code(reader, name, sender)
        if reader.left:
            more = read(reader, name, sender)
    return Packet(name, pid, code=code, properties=more)


def _answer(name: str, reader: Reader) -> Packet:
    pid = _pid(reader, name)
    if name == "UNSUBACK" and reader.level < 5:
        return Packet(name, pid)
    more = read(reader, name, SERVER)
    if not reader.left:
        raise Broken(f"{name}: no reason code", PROTOCOL_ERROR)
    codes = bytes(_code(reader, name, SERVER) for _ in range(reader.left))
    return Packet(name, pid, codes=codes, properties=more)


def _filter(reader: Reader, name: str) -> bytes:
    topic = valid_text(reader.data(f"{name}: topic filter"), f"{name}: topic filter")
    if not topic:
        raise Broken(f"{name}: an empty topic filter [MQTT-4.7.3-1]", PROTOCOL_ERROR)
    levels = topic.split(b"/")
    if b"#" in topic[:-1] or any(len(each) > 1 and each[-1:] == b"#" for each in levels):
        raise Broken(f"{name}: # in {topic!r} is not the last level [MQTT-4.7.1-1]", 0x82)
    if any(b"+" in each and each != b"+" for each in levels):
        raise Broken(f"{name}: + in {topic!r} is not a whole level [MQTT-4.7.1-2]", 0x82)
    if levels[0] == b"$share":
        if len(levels) < 3 or not levels[1] or not b"/".join(levels[2:]):
            raise Broken(f"{name}: {topic!r} lacks a part [MQTT-4.8.2-1]", PROTOCOL_ERROR)
        if levels[1] in (b"+", b"#"):
            raise Broken(f"{name}: {topic!r} has a wildcard as its group [MQTT-4.8.2-2]", 0x82)
    return topic


def _request(name: str, reader: Reader) -> Packet:
    pid = _pid(reader, name)
    more = read(reader, name, CLIENT)
    filters = []
    while reader.left:
        each = Filter(_filter(reader, name))
        filters.append(_with_options(each, reader) if name == "SUBSCRIBE" else each)
    if not filters:
        raise Broken(f"{name}: no topic filter [MQTT-3.8.3-2] [MQTT-3.10.3-2]", PROTOCOL_ERROR)
    return Packet(name, pid, properties=more, filters=tuple(filters))


def _with_options(each: Filter, reader: Reader) -> Filter:
    options = reader.number(1, "SUBSCRIBE: options")
    if options & 0xC0 or (reader.level < 5 and options > 2):
        raise Broken("SUBSCRIBE: reserved options [MQTT-3.8.3-5] [MQTT-3-8.3-4]", MALFORMED)
    qos, handling, no_local = options & 3, options >> 4 & 3, options >> 2 & 1
    if 3 in (qos, handling):
        raise Broken("SUBSCRIBE: QoS or Retain Handling 3 (section 3.8.3.1)", PROTOCOL_ERROR)
    if no_local and each.topic.startswith(b"$share/"):
        raise Broken("SUBSCRIBE: No Local of a shared one [MQTT-3.8.3-4]", PROTOCOL_ERROR)
    return Filter(each.topic, qos, no_local, options >> 3 & 1, handling)


def _ending(name: str, reader: Reader, sender: str) -> Packet:
    if not reader.left:
        if (name, sender) == ("AUTH", CLIENT):
            raise Broken("AUTH: no client sends reason code 0x00", PROTOCOL_ERROR)
        return Packet(name)
    code, more = _code(reader, name, sender), NONE
    # DISCONNECT may end after its reason code (section 3.14.2.2.1), and AUTH may not.
    if reader.left or (name == "AUTH" and code):
        more = read(reader, name, sender)
        if name == "AUTH" and more.first(Id.AUTHENTICATION_METHOD) is None:
            raise Broken("AUTH: no authentication method", PROTOCOL_ERROR)
    return Packet(name, code=code, properties=more)


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a topic filter matches a topic name (section 4.7)."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    if wanted[-1] == b"#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        w in (b"+", level) for w, level in zip(wanted, levels, strict=True)
    )
