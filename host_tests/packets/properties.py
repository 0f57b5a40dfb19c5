"""The 27 properties of MQTT 5 (section 2.2.2.2): types, packets that carry them, and values."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from packets.fields import (
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
    Broken,
    Reader,
    length,
    text,
    topic_name,
)

BYTE, TWO, FOUR, INTEGER, TEXT, DATA, PAIR = range(7)
_SIZES = {BYTE: 1, TWO: 2, FOUR: 4}

ACKS = ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")
WILL = "will"  # the properties of a will are a set of their own within CONNECT
_HELLO = ("CONNECT", "CONNACK")
_MESSAGE = ("PUBLISH", WILL)
_LOGIN = ("CONNECT", "CONNACK", "AUTH")
_ANSWERS = (*ACKS, "SUBACK", "UNSUBACK", "CONNACK", "DISCONNECT", "AUTH")

# Table 2-4: the identifier of each property, its type, and the packets that may carry it.
_TABLE: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "PAYLOAD_FORMAT": (0x01, BYTE, _MESSAGE),
    "MESSAGE_EXPIRY": (0x02, FOUR, _MESSAGE),
    "CONTENT_TYPE": (0x03, TEXT, _MESSAGE),
    "RESPONSE_TOPIC": (0x08, TEXT, _MESSAGE),
    "CORRELATION_DATA": (0x09, DATA, _MESSAGE),
    "SUBSCRIPTION_IDENTIFIER": (0x0B, INTEGER, ("PUBLISH", "SUBSCRIBE")),
    "SESSION_EXPIRY": (0x11, FOUR, (*_HELLO, "DISCONNECT")),
    "ASSIGNED_CLIENT_IDENTIFIER": (0x12, TEXT, ("CONNACK",)),
    "SERVER_KEEP_ALIVE": (0x13, TWO, ("CONNACK",)),
    "AUTHENTICATION_METHOD": (0x15, TEXT, _LOGIN),
    "AUTHENTICATION_DATA": (0x16, DATA, _LOGIN),
    "REQUEST_PROBLEM_INFORMATION": (0x17, BYTE, ("CONNECT",)),
    "WILL_DELAY": (0x18, FOUR, (WILL,)),
    "REQUEST_RESPONSE_INFORMATION": (0x19, BYTE, ("CONNECT",)),
    "RESPONSE_INFORMATION": (0x1A, TEXT, ("CONNACK",)),
    "SERVER_REFERENCE": (0x1C, TEXT, ("CONNACK", "DISCONNECT")),
    "REASON_STRING": (0x1F, TEXT, _ANSWERS),
    "RECEIVE_MAXIMUM": (0x21, TWO, _HELLO),
    "TOPIC_ALIAS_MAXIMUM": (0x22, TWO, _HELLO),
    "TOPIC_ALIAS": (0x23, TWO, ("PUBLISH",)),
    "MAXIMUM_QOS": (0x24, BYTE, ("CONNACK",)),
    "RETAIN_AVAILABLE": (0x25, BYTE, ("CONNACK",)),
    "USER_PROPERTY": (0x26, PAIR, (*_ANSWERS, *_MESSAGE, "CONNECT", "SUBSCRIBE", "UNSUBSCRIBE")),
    "MAXIMUM_PACKET_SIZE": (0x27, FOUR, _HELLO),
    "WILDCARDS_AVAILABLE": (0x28, BYTE, ("CONNACK",)),
    "SUBSCRIPTION_IDENTIFIERS_AVAILABLE": (0x29, BYTE, ("CONNACK",)),
    "SHARED_AVAILABLE": (0x2A, BYTE, ("CONNACK",)),
}
Id = IntEnum("Id", {name: row[0] for name, row in _TABLE.items()})  # type: ignore[misc]
TABLE = {Id(number): (kind, carriers) for number, kind, carriers in _TABLE.values()}
_BY_NUMBER = {each.value: each for each in Id}


class Property(NamedTuple):
    """One property. The value is an int, bytes, or a pair of bytes (User Property)."""

    id: int
    value: Any


class Properties(tuple[Property, ...]):
    """The properties of a packet, in the order in which they stand there."""

    __slots__ = ()

    def first(self, identifier: int, default: Any = None) -> Any:
        """The value of the first property with that identifier."""
        return next(iter(self.each(identifier)), default)

    def each(self, identifier: int) -> list[Any]:
        """The values of all properties with that identifier."""
        return [value for each, value in self if each == identifier]


Pairs = Iterable[tuple[int, Any]]


def properties(pairs: Pairs) -> Properties:
    """Properties of pairs of identifier and value."""
    return Properties(Property(*pair) for pair in pairs)


NONE = Properties()
# What a direction forbids beyond the table.
SERVER, CLIENT = "server", "client"
_FORBIDDEN = {
    (SERVER, "DISCONNECT", Id.SESSION_EXPIRY): "[MQTT-3.14.2-2]",
    (CLIENT, "DISCONNECT", Id.SERVER_REFERENCE): "(section 3.14.2.2.5)",
    (CLIENT, "PUBLISH", Id.SUBSCRIPTION_IDENTIFIER): "[MQTT-3.3.4-6]",
}

# The least value of those that must not be 0, and the code for the answer.
_NOT_0 = {
    Id.RECEIVE_MAXIMUM: PROTOCOL_ERROR,
    Id.MAXIMUM_PACKET_SIZE: PROTOCOL_ERROR,
    Id.SUBSCRIPTION_IDENTIFIER: PROTOCOL_ERROR,
    Id.TOPIC_ALIAS: TOPIC_ALIAS_INVALID,
}


def read(reader: Reader, packet: str, sender: str) -> Properties:
    """The Property Length and the properties of a packet from that sender, checked.

    Below level 5 packets have neither.
    """
    if reader.level < 5:
        return NONE
    what = f"the properties of {packet}"
    inner = Reader(reader.take(reader.integer(f"the length of {what}"), what), reader.tolerant)
    found: list[Property] = []
    while inner.left:
        number = inner.integer(what, shortest=True)
        identifier = _BY_NUMBER.get(number)
        if identifier is None:
            raise Broken(f"{packet}: no property has the identifier {number:#x}")
        kind, carriers = TABLE[identifier]
        if packet not in carriers:
            raise Broken(f"{packet}: cannot carry {identifier.name} (section 2.2.2.2)")
        rule = _FORBIDDEN.get((sender, packet, identifier))
        if rule:
            raise Broken(f"{packet}: no {sender} sends {identifier.name} {rule}", PROTOCOL_ERROR)
        name = f"{packet}: {identifier.name}"
        value = _value(inner, kind, name)
        # Brokers pass these on, and a client bears them.
        borne = sender == SERVER and identifier in (Id.PAYLOAD_FORMAT, Id.RESPONSE_TOPIC)
        if not borne:
            _check(packet, identifier, kind, value, name)
        if any(each.id == identifier for each in found) and not _repeats(identifier, packet):
            raise Broken(f"{packet}: {identifier.name} twice", PROTOCOL_ERROR)
        found.append(Property(identifier, value))
    return Properties(found)


def _value(reader: Reader, kind: int, what: str) -> Any:
    if kind in _SIZES:
        return reader.number(_SIZES[kind], what)
    if kind == INTEGER:
        return reader.integer(what)
    if kind == DATA:
        return reader.data(what)
    found = reader.text(what)
    return (found, reader.text(what)) if kind == PAIR else found


def _repeats(identifier: Id, packet: str) -> bool:
    """Return whether a packet may carry that property more than once."""
    return identifier == Id.USER_PROPERTY or (
        identifier == Id.SUBSCRIPTION_IDENTIFIER and packet == "PUBLISH"
    )


def _check(packet: str, identifier: Id, kind: int, value: Any, what: str) -> None:
    if kind == BYTE and value > 1:
        raise Broken(f"{what} must be 0 or 1, not {value}", PROTOCOL_ERROR)
    if identifier in _NOT_0 and not value:
        raise Broken(f"{what} must not be 0", _NOT_0[identifier])
    if identifier == Id.RESPONSE_TOPIC:
        topic_name(value, f"{what} [MQTT-3.3.2-14]")


def encoded(pairs: Pairs) -> bytes:
    """The properties behind their length. Nothing is checked.

    The value of an identifier that is not in the table is bytes, which are written as they are.
    """
    out = b""
    for identifier, value in pairs:
        out += length(identifier)
        kind = TABLE[Id(identifier)][0] if identifier in _BY_NUMBER else None
        if kind is None:
            out += value
        elif kind in _SIZES:
            out += value.to_bytes(_SIZES[kind], "big")
        elif kind == INTEGER:
            out += length(value)
        elif kind == PAIR:
            out += text(value[0]) + text(value[1])
        else:
            out += text(value)
    return length(len(out)) + out
