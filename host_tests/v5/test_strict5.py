"""The decoder takes what MQTT 5 allows, refuses what it forbids, and names the reason code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peer
from packets.agreed import check_client, check_server
from v5 import build5, strict5
from v5.properties5 import CLIENT, NONE, SERVER, TABLE, WILL, Id, Properties, Property
from v5.properties5 import encoded as encoded_properties
from v5.strict5 import Broken, Connect, Filter, Packet, Will

DECODERS = {SERVER: strict5.from_server, CLIENT: strict5.from_client}


def _decoded(data: bytes, sender: str) -> Packet:
    ((first, body),), rest = strict5.split(data)
    assert rest == b""
    return DECODERS[sender](first, body)


def _properties(*pairs: tuple[int, Any]) -> Properties:
    return Properties(Property(*pair) for pair in pairs)


TAKEN = [
    # from a server
    (SERVER, "20 03 00 00 00", Packet("CONNACK")),
    (SERVER, "20 03 01 00 00", Packet("CONNACK", present=1)),
    (SERVER, "20 06 00 00 03 21 00 14", Packet("CONNACK", properties=_properties((0x21, 20)))),
    (
        SERVER,
        "20 0b 00 87 08 1f 00 02 6e 6f 13 00 05",
        Packet("CONNACK", code=0x87, properties=_properties((0x1F, b"no"), (0x13, 5))),
    ),
    (SERVER, "30 05 00 01 61 00 78", Packet("PUBLISH", topic=b"a", payload=b"x")),
    (SERVER, "3d 06 00 01 61 00 09 00", Packet("PUBLISH", 9, b"a", b"", 2, 1, 1)),
    (
        SERVER,
        "30 09 00 01 61 05 0b 01 0b 80 01",
        Packet("PUBLISH", topic=b"a", properties=_properties((0x0B, 1), (0x0B, 128))),
    ),
    (SERVER, "30 06 00 00 03 23 00 01", Packet("PUBLISH", properties=_properties((0x23, 1)))),
    (SERVER, "38 04 00 01 61 00", Packet("PUBLISH", topic=b"a", dup=1)),
    (SERVER, "40 02 00 07", Packet("PUBACK", 7)),
    (SERVER, "40 03 00 07 10", Packet("PUBACK", 7, code=0x10)),
    (SERVER, "50 04 00 07 97 00", Packet("PUBREC", 7, code=0x97)),
    (SERVER, "62 03 00 07 92", Packet("PUBREL", 7, code=0x92)),
    (
        SERVER,
        "70 0b 00 07 00 07 26 00 01 6b 00 01 76",
        Packet("PUBCOMP", 7, properties=_properties((0x26, (b"k", b"v")))),
    ),
    (SERVER, "90 06 00 07 00 00 02 87", Packet("SUBACK", 7, codes=b"\x00\x02\x87")),
    (SERVER, "b0 05 00 07 00 00 11", Packet("UNSUBACK", 7, codes=b"\x00\x11")),
    (SERVER, "d0 00", Packet("PINGRESP")),
    (SERVER, "e0 00", Packet("DISCONNECT")),
    (SERVER, "e0 01 8e", Packet("DISCONNECT", code=0x8E)),
    (SERVER, "e0 02 8b 00", Packet("DISCONNECT", code=0x8B)),
    (
        SERVER,
        "f0 06 18 04 15 00 01 6d",
        Packet("AUTH", code=0x18, properties=_properties((0x15, b"m"))),
    ),
    (SERVER, "f0 00", Packet("AUTH")),
    # from a client
    (
        CLIENT,
        "10 0e 00 04 4d 51 54 54 05 02 00 3c 00 00 01 63",
        Packet("CONNECT", connect=Connect(b"c", 1, 60)),
    ),
    (
        CLIENT,
        "10 19 00 04 4d 51 54 54 05 34 00 00 05 11 ff ff ff ff 00 00 00 00 01 74 00 01 77",
        Packet(
            "CONNECT",
            properties=_properties((0x11, 0xFFFFFFFF)),
            connect=Connect(b"", 0, 0, Will(b"t", b"w", 2, 1)),
        ),
    ),
    (
        CLIENT,
        "10 13 00 04 4d 51 54 54 05 c2 00 00 00 00 00 00 01 75 00 01 ff",
        Packet("CONNECT", connect=Connect(b"", 1, 0, None, b"u", b"\xff")),
    ),
    (
        CLIENT,
        "10 10 00 04 4d 51 54 54 05 42 00 00 00 00 00 00 01 70",
        Packet("CONNECT", connect=Connect(b"", 1, 0, None, None, b"p")),
    ),
    (CLIENT, "32 06 00 01 61 00 01 00", Packet("PUBLISH", 1, b"a", b"", 1)),
    (CLIENT, "40 03 00 07 80", Packet("PUBACK", 7, code=0x80)),
    (
        CLIENT,
        "82 10 00 07 02 0b 01 00 01 61 2d 00 04 62 2f 2b 2f 00",
        Packet(
            "SUBSCRIBE",
            7,
            properties=_properties((0x0B, 1)),
            filters=(Filter(b"a", 1, 1, 1, 2), Filter(b"b/+/")),
        ),
    ),
    (
        CLIENT,
        "82 10 00 07 00 00 0a 24 73 68 61 72 65 2f 67 2f 23 01",
        Packet("SUBSCRIBE", 7, filters=(Filter(b"$share/g/#", 1),)),
    ),
    (CLIENT, "a2 06 00 07 00 00 01 23", Packet("UNSUBSCRIBE", 7, filters=(Filter(b"#"),))),
    (CLIENT, "c0 00", Packet("PINGREQ")),
    (CLIENT, "e0 01 04", Packet("DISCONNECT", code=4)),
    (
        CLIENT,
        "e0 07 00 05 11 00 00 00 00",
        Packet("DISCONNECT", properties=_properties((0x11, 0))),
    ),
    (
        CLIENT,
        "f0 0a 19 08 15 00 01 6d 16 00 01 ff",
        Packet("AUTH", code=0x19, properties=_properties((0x15, b"m"), (0x16, b"\xff"))),
    ),
]


@pytest.mark.parametrize(("sender", "data", "packet"), TAKEN, ids=[each[1] for each in TAKEN])
def test_what_is_taken(sender: str, data: str, packet: Packet) -> None:
    assert _decoded(bytes.fromhex(data), sender) == packet


HELLO = "00 04 4d 51 54 54 05"  # protocol name and version

# (sender, packet, reason code, words of the text)
REFUSED = [
    # the fixed header
    (SERVER, "00 00", 0x81, "type 0"),
    (SERVER, "10 00", 0x82, "no server sends CONNECT"),
    (SERVER, "c0 00", 0x82, "no server sends PINGREQ"),
    (CLIENT, "20 03 00 00 00", 0x82, "no client sends CONNACK"),
    (CLIENT, "d0 00", 0x82, "no client sends PINGRESP"),
    (SERVER, "21 03 00 00 00", 0x81, "flags"),
    (SERVER, "60 02 00 01", 0x81, "PUBREL: flags"),
    (CLIENT, "80 07 00 01 00 00 01 61 00", 0x81, "SUBSCRIBE: flags"),
    (SERVER, "36 06 00 01 61 00 01 00", 0x81, "QoS 3"),
    (CLIENT, "38 04 00 01 61 00", 0x82, "DUP at QoS 0"),
    (SERVER, "d0 01 00", 0x81, "1 bytes too many"),
    # lengths
    (SERVER, "20 02 00 00", 0x81, "length of the properties of CONNACK: runs past"),
    (SERVER, "20 00", 0x81, "runs past"),
    (SERVER, "20 04 00 00 00 00", 0x81, "1 bytes too many"),
    (SERVER, "40 01 00", 0x81, "runs past"),
    (SERVER, "40 04 00 07 00 01", 0x81, "runs past"),
    (SERVER, "40 05 00 07 00 00 00", 0x81, "too many"),
    (SERVER, "30 01 00", 0x81, "runs past"),
    (SERVER, "30 03 00 01 61", 0x81, "length of the properties of PUBLISH: runs past"),
    (SERVER, "30 06 00 01 61 03 01 00", 0x81, "runs past"),
    (SERVER, "30 07 00 01 61 80 80 80 80", 0x81, "five bytes"),
    (SERVER, "30 05 00 01 61 80 00", 0x81, "needless byte [MQTT-1.5.5-1]"),
    (SERVER, "30 05 00 01 61 02 01", 0x81, "runs past"),
    (SERVER, "e0 03 8b 00 00", 0x81, "too many"),
    (SERVER, "f0 01 18", 0x81, "length of the properties of AUTH: runs past"),
    # reserved bits, and codes
    (SERVER, "20 03 02 00 00", 0x81, "reserved flags [MQTT-3.2.2-1]"),
    (SERVER, "20 03 01 87 00", 0x82, "session present, and refused"),
    (SERVER, "20 03 00 01 00", 0x82, "reason code 0x01"),
    (SERVER, "40 03 00 07 92", 0x82, "reason code 0x92"),
    (CLIENT, "40 03 00 07 10", 0x82, "no client sends reason code 0x10"),
    (SERVER, "62 03 00 07 80", 0x82, "reason code 0x80"),
    (SERVER, "90 04 00 07 00 03", 0x82, "reason code 0x03"),
    (SERVER, "b0 04 00 07 00 01", 0x82, "reason code 0x01"),
    (SERVER, "90 03 00 07 00", 0x82, "no reason code"),
    (SERVER, "e0 01 04", 0x82, "no server sends reason code 0x04"),
    (CLIENT, "e0 01 8e", 0x82, "no client sends reason code 0x8e"),
    (SERVER, "f0 06 19 04 15 00 01 6d", 0x82, "no server sends reason code 0x19"),
    (CLIENT, "f0 00", 0x82, "no client sends reason code 0x00"),
    (SERVER, "f0 02 18 00", 0x82, "no authentication method"),
    # packet identifiers
    (SERVER, "40 02 00 00", 0x82, "packet identifier 0"),
    (SERVER, "32 06 00 01 61 00 00 00", 0x82, "packet identifier 0"),
    (SERVER, "90 04 00 00 00 00", 0x82, "packet identifier 0"),
    # topic names
    (SERVER, "30 03 00 00 00", 0x82, "topic name: empty"),
    (SERVER, "30 04 00 01 2b 00", 0x82, "wildcard"),
    (SERVER, "30 04 00 01 00 00", 0x81, "U+0000"),
    (SERVER, "30 05 00 02 c3 28 00", 0x81, "UTF-8"),
    (SERVER, "30 06 00 03 ed a0 80 00", 0x81, "UTF-8"),
    (SERVER, "30 05 00 02 c0 80 00", 0x81, "UTF-8"),
    # properties
    (SERVER, "20 05 00 00 02 04 00", 0x81, "no property has the identifier 0x4"),
    (SERVER, "20 05 00 00 02 17 00", 0x81, "cannot carry REQUEST_PROBLEM_INFORMATION"),
    (SERVER, "20 09 00 00 06 21 00 01 21 00 01", 0x82, "RECEIVE_MAXIMUM twice"),
    (SERVER, "20 06 00 00 03 21 00 00", 0x82, "RECEIVE_MAXIMUM must not be 0"),
    (SERVER, "20 08 00 00 05 27 00 00 00 00", 0x82, "MAXIMUM_PACKET_SIZE must not be 0"),
    (SERVER, "20 05 00 00 02 24 02", 0x82, "MAXIMUM_QOS must be 0 or 1, not 2"),
    (SERVER, "20 05 00 00 02 25 02", 0x82, "RETAIN_AVAILABLE must be 0 or 1"),
    (SERVER, "20 05 00 00 02 28 02", 0x82, "WILDCARDS_AVAILABLE must be 0 or 1"),
    (SERVER, "20 05 00 00 02 29 ff", 0x82, "IDENTIFIERS_AVAILABLE must be 0 or 1"),
    (SERVER, "20 05 00 00 02 2a 02", 0x82, "SHARED_AVAILABLE must be 0 or 1"),
    (SERVER, "20 07 00 00 04 1f 00 01 ff", 0x81, "REASON_STRING: not UTF-8"),
    (SERVER, "20 0a 00 00 07 26 00 01 6b 00 01 00", 0x81, "USER_PROPERTY: contains U+0000"),
    (CLIENT, "30 06 00 01 61 02 01 02", 0x82, "PAYLOAD_FORMAT must be 0 or 1"),
    (SERVER, "30 08 00 01 61 04 01 00 01 00", 0x82, "PAYLOAD_FORMAT twice"),
    (SERVER, "30 07 00 01 61 03 23 00 00", 0x94, "TOPIC_ALIAS must not be 0"),
    (SERVER, "30 06 00 01 61 02 0b 00", 0x82, "SUBSCRIPTION_IDENTIFIER must not be 0"),
    (CLIENT, "30 07 00 01 61 03 08 00 00", 0x82, "RESPONSE_TOPIC [MQTT-3.3.2-14]: empty"),
    (CLIENT, "30 08 00 01 61 04 08 00 01 23", 0x82, "RESPONSE_TOPIC [MQTT-3.3.2-14]: has a"),
    (SERVER, "e0 07 8b 05 11 00 00 00 01", 0x82, "no server sends SESSION_EXPIRY"),
    (CLIENT, "e0 06 81 04 1c 00 01 61", 0x82, "no client sends SERVER_REFERENCE"),
    (CLIENT, "30 06 00 01 61 02 0b 01", 0x82, "no client sends SUBSCRIPTION_IDENTIFIER"),
    (CLIENT, "30 07 00 01 61 02 01 01 ff", 0x99, "said to be UTF-8"),
    # CONNECT
    (CLIENT, "10 0d 00 04 4d 51 54 54 04 02 00 00 00 00 00", 0x84, "b'MQTT' 4"),
    (CLIENT, "10 0d 00 04 4d 51 54 58 05 02 00 00 00 00 00", 0x84, "b'MQTX' 5"),
    (CLIENT, f"10 0d {HELLO} 03 00 00 00 00 00", 0x81, "reserved flag"),
    (CLIENT, f"10 0d {HELLO} 0a 00 00 00 00 00", 0x81, "QoS or RETAIN of no will"),
    (CLIENT, f"10 0d {HELLO} 22 00 00 00 00 00", 0x81, "QoS or RETAIN of no will"),
    (CLIENT, f"10 13 {HELLO} 1e 00 00 00 00 00 00 00 01 74 00 00", 0x81, "will QoS 3"),
    (CLIENT, f"10 12 {HELLO} 06 00 00 00 00 00 00 00 00 00 00", 0x82, "will topic: empty"),
    (CLIENT, f"10 13 {HELLO} 06 00 00 00 00 00 00 00 01 23 00 00", 0x82, "will topic: has a"),
    (CLIENT, f"10 0e {HELLO} 02 00 00 00 00 01 ff", 0x81, "client identifier: not UTF-8"),
    (CLIENT, f"10 0e {HELLO} 02 00 00 00 00 00 00", 0x81, "1 bytes too many"),
    (CLIENT, f"10 0d {HELLO} 82 00 00 00 00 00", 0x81, "user name: runs past"),
    (CLIENT, f"10 12 {HELLO} 02 00 00 05 18 00 00 00 01 00 00", 0x81, "cannot carry WILL_DELAY"),
    (CLIENT, f"10 11 {HELLO} 02 00 00 04 16 00 01 61 00 00", 0x82, "without a method"),
    (CLIENT, f"10 0f {HELLO} 02 00 00 02 17 02 00 00", 0x82, "must be 0 or 1"),
    (CLIENT, f"10 0f {HELLO} 02 00 00 02 19 02 00 00", 0x82, "must be 0 or 1"),
    # SUBSCRIBE and UNSUBSCRIBE
    (CLIENT, "82 03 00 07 00", 0x82, "no topic filter [MQTT-3.8.3-2]"),
    (CLIENT, "a2 03 00 07 00", 0x82, "no topic filter [MQTT-3.10.3-2]"),
    (CLIENT, "82 07 00 07 00 00 01 61 03", 0x82, "QoS or Retain Handling 3"),
    (CLIENT, "82 07 00 07 00 00 01 61 30", 0x82, "QoS or Retain Handling 3"),
    (CLIENT, "82 07 00 07 00 00 01 61 40", 0x81, "reserved options"),
    (CLIENT, "82 06 00 07 00 00 01 61", 0x81, "options: runs past"),
    (CLIENT, "82 06 00 07 00 00 00 00", 0x82, "empty topic filter"),
    (CLIENT, "82 0b 00 07 04 0b 01 0b 01 00 01 61 00", 0x82, "SUBSCRIPTION_IDENTIFIER twice"),
    (CLIENT, "82 08 00 07 00 00 02 61 23 00", 0x82, "not the last level"),
    (CLIENT, "82 09 00 07 00 00 03 23 2f 61 00", 0x82, "not the last level"),
    (CLIENT, "82 08 00 07 00 00 02 61 2b 00", 0x82, "not a whole level"),
    (CLIENT, "82 10 00 07 00 00 0a 24 73 68 61 72 65 2f 67 2f 23 04", 0x82, "No Local"),
    (CLIENT, "82 0e 00 07 00 00 08 24 73 68 61 72 65 2f 67 00", 0x82, "lacks a part"),
    (CLIENT, "82 0f 00 07 00 00 09 24 73 68 61 72 65 2f 2f 61 00", 0x82, "lacks a part"),
    (CLIENT, "82 10 00 07 00 00 0a 24 73 68 61 72 65 2f 2b 2f 61 00", 0x82, "as its group"),
]


@pytest.mark.parametrize(
    ("sender", "data", "code", "words"), REFUSED, ids=[each[1] for each in REFUSED]
)
def test_what_is_refused(sender: str, data: str, code: int, words: str) -> None:
    with pytest.raises(Broken) as broken:
        _decoded(bytes.fromhex(data), sender)
    assert words in str(broken.value)
    assert broken.value.code == code


def test_a_fixed_header() -> None:
    assert strict5.header(b"") is strict5.header(b"\x30") is strict5.header(b"\x30\x80") is None
    assert strict5.header(b"\x30\xff\xff\xff\x7f") == strict5.Header(0x30, 5, 268_435_455)
    for data, words in ((b"\x30\x80\x80\x80\x80", "five bytes"), (b"\x30\x80\x00", "needless")):
        with pytest.raises(Broken, match=words):
            strict5.header(data)


WHOLE = ("CONNECT", "CONNACK", "UNSUBSCRIBE", "AUTH")  # one field less, and they are broken


@pytest.mark.parametrize(
    ("sender", "data"),
    [each[:2] for each in TAKEN if each[2].name in WHOLE and each[1] != "f0 00"],
)
def test_a_packet_that_is_cut_is_refused(sender: str, data: str) -> None:
    ((first, body),), _rest = strict5.split(bytes.fromhex(data))
    for size in range(1, len(body)):
        with pytest.raises(Broken):
            DECODERS[sender](first, body[:size])


# Which packet carries which property: the table once more, from the packets' sections.
CARRIES = {
    "CONNECT": "11 21 27 22 19 17 26 15 16",
    WILL: "18 01 02 03 08 09 26",
    "CONNACK": "11 21 24 25 27 12 22 1f 26 28 29 2a 13 1a 1c 15 16",
    "PUBLISH": "01 02 23 08 09 26 0b 03",
    "PUBACK": "1f 26",
    "PUBREC": "1f 26",
    "PUBREL": "1f 26",
    "PUBCOMP": "1f 26",
    "SUBSCRIBE": "0b 26",
    "SUBACK": "1f 26",
    "UNSUBSCRIBE": "26",
    "UNSUBACK": "1f 26",
    "DISCONNECT": "11 1f 26 1c",
    "AUTH": "15 16 1f 26",
}


def _value(identifier: int) -> Any:
    kind = TABLE[Id(identifier)][0]
    return (1, 1, 1, 1, b"t", b"t", (b"k", b"v"))[kind]


def _carrier(name: str, properties: Properties) -> tuple[str, bytes]:
    """Sender and bytes of a packet with these properties, which nothing but them can spoil."""
    if name == WILL:
        connect = Connect(b"c", will=Will(b"t", b"", properties=properties))
        return CLIENT, build5.connect(connect)
    senders = [each for each in (SERVER, CLIENT) if name in strict5.SENT_BY[each]]
    sender = senders[0]
    if name == "DISCONNECT" and properties.each(Id.SESSION_EXPIRY):
        sender = CLIENT
    if name == "CONNECT" and not properties.each(Id.AUTHENTICATION_METHOD):
        extra = properties.each(Id.AUTHENTICATION_DATA)
        properties = Properties([*properties, Property(0x15, b"m")]) if extra else properties
    if name == "AUTH" and not properties.each(Id.AUTHENTICATION_METHOD):
        properties = Properties([*properties, Property(0x15, b"m")])
    packet = {
        "CONNECT": Packet(name, connect=Connect(b"c")),
        "SUBSCRIBE": Packet(name, 1, filters=(Filter(b"a"),)),
        "UNSUBSCRIBE": Packet(name, 1, filters=(Filter(b"a"),)),
        "PUBLISH": Packet(name, topic=b"a"),
        "SUBACK": Packet(name, 1, codes=b"\0"),
        "UNSUBACK": Packet(name, 1, codes=b"\0"),
        "DISCONNECT": Packet(name),
        "AUTH": Packet(name, code=0x18),
        "CONNACK": Packet(name),
    }.get(name, Packet(name, 1))
    return sender, build5.encode(packet._replace(properties=properties))


@pytest.mark.parametrize("name", CARRIES)
def test_which_packet_carries_which_property(name: str) -> None:
    carried = bytes.fromhex(CARRIES[name])
    assert len(TABLE) == 27
    for identifier in TABLE:
        properties = _properties((identifier, _value(identifier)))
        sender, data = _carrier(name, properties)
        if identifier not in carried:
            with pytest.raises(Broken, match="cannot carry") as broken:
                _decoded(data, sender)
            assert broken.value.code == 0x81
            continue
        packet = _decoded(data, sender)
        will = packet.connect.will if packet.connect else None
        found = will.properties if will else packet.properties
        assert found.first(identifier) == _value(identifier)
        # A second one is allowed for two of them.
        sender, data = _carrier(name, Properties([*properties, *properties]))
        if identifier == 0x26 or (identifier == 0x0B and name == "PUBLISH"):
            _decoded(data, sender)
        else:
            with pytest.raises(Broken, match="twice") as broken:
                _decoded(data, sender)
            assert broken.value.code == 0x82


SIZES = {1: "01 17 19 24 25 28 29 2a", 2: "13 21 22 23", 4: "02 11 18 27"}


@pytest.mark.parametrize("size", SIZES)
def test_how_long_a_number_is(size: int) -> None:
    for identifier in bytes.fromhex(SIZES[size]):
        data = encoded_properties([(identifier, 1)])
        assert data == bytes([1 + size, identifier, *bytes(size - 1), 1])


# Round trips

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(str.encode)
names = texts.filter(lambda raw: raw and not {b"+"[0], b"#"[0]} & set(raw))
pids = st.integers(1, 65535)
datas = st.binary(max_size=20)


def _values(identifier: Id) -> st.SearchStrategy[Any]:
    if identifier == Id.RESPONSE_TOPIC:
        return names
    least = 1 if identifier in (0x21, 0x23, 0x27, 0x0B) else 0
    return (
        st.integers(0, 1),
        st.integers(least, 0xFFFF),
        st.integers(least, 0xFFFFFFFF),
        st.integers(1, 268_435_455),
        texts,
        datas,
        st.tuples(texts, texts),
    )[TABLE[identifier][0]]


@st.composite
def _some_properties(draw: st.DrawFn, name: str, skip: bytes = b"") -> Properties:
    ids = [Id(each) for each in bytes.fromhex(CARRIES[name]) if each not in skip]
    chosen = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    if name == "AUTH":
        chosen = [Id.AUTHENTICATION_METHOD, *(i for i in chosen if i != 0x15)]
    if name == "CONNECT" and 0x15 not in chosen:
        chosen = [each for each in chosen if each != 0x16]
    if Id.USER_PROPERTY in chosen:
        chosen += [Id.USER_PROPERTY] * draw(st.integers(0, 2))
    return Properties(Property(each, draw(_values(each))) for each in chosen)


@st.composite
def _messages(draw: st.DrawFn, sender: str) -> Packet:
    skip = b"\x01" if sender == SERVER else b"\x01\x0b"
    properties = draw(_some_properties("PUBLISH", skip))
    empty = properties.each(Id.TOPIC_ALIAS) and draw(st.booleans())
    qos = draw(st.integers(0, 2))
    return Packet(
        "PUBLISH",
        draw(pids) if qos else 0,
        b"" if empty else draw(names),
        draw(st.binary(max_size=300)),
        qos,
        draw(st.integers(0, 1)),
        draw(st.integers(0, 1)) if qos else 0,
        properties=properties,
    )


@st.composite
def _connects(draw: st.DrawFn) -> Packet:
    optional = st.one_of(st.none(), datas)
    will = None
    if draw(st.booleans()):
        properties = draw(_some_properties(WILL, b"\x01"))
        will = Will(
            draw(names), draw(datas), draw(st.integers(0, 2)), draw(st.integers(0, 1)), properties
        )
    connect = Connect(
        draw(texts),
        draw(st.integers(0, 1)),
        draw(st.integers(0, 65535)),
        will,
        draw(st.one_of(st.none(), texts)),
        draw(optional),
    )
    return Packet("CONNECT", properties=draw(_some_properties("CONNECT")), connect=connect)


@st.composite
def _others(draw: st.DrawFn, sender: str) -> Packet:
    name = draw(st.sampled_from(sorted(strict5.SENT_BY[sender] - {"PUBLISH", "CONNECT"})))
    if name.startswith("PING"):
        return Packet(name)
    skip = b"\x11" if sender == SERVER else b"\x1c"
    skip = skip if name == "DISCONNECT" else b""
    packet = Packet(name, properties=draw(_some_properties(name, skip)))
    if name not in ("CONNACK", "DISCONNECT", "AUTH"):
        packet = packet._replace(pid=draw(pids))
    if name in ("SUBSCRIBE", "UNSUBSCRIBE"):
        least = st.just(0)
        bit, two = (st.integers(0, 1), st.integers(0, 2)) if name == "SUBSCRIBE" else (least,) * 2
        filters = st.lists(st.builds(Filter, names, two, bit, bit, two), min_size=1, max_size=4)
        kept = [f for f in draw(filters) if not f.topic.startswith(b"$share")]
        return packet._replace(filters=tuple(kept or [Filter(b"#")]))
    codes = strict5.CODES[sender, name]
    if name in ("SUBACK", "UNSUBACK"):
        chosen = draw(st.lists(st.sampled_from(codes), min_size=1, max_size=5))
        return packet._replace(codes=bytes(chosen))
    packet = packet._replace(code=draw(st.sampled_from(codes)))
    if name == "CONNACK" and not packet.code:
        packet = packet._replace(present=draw(st.integers(0, 1)))
    return packet


@given(st.one_of(_messages(SERVER), _others(SERVER)))
def test_round_trip_of_what_a_server_sends(packet: Packet) -> None:
    assert _decoded(build5.encode(packet), SERVER) == packet


@given(st.one_of(_connects(), _messages(CLIENT), _others(CLIENT)))
def test_round_trip_of_what_a_client_sends(packet: Packet) -> None:
    assert _decoded(build5.encode(packet), CLIENT) == packet


@given(st.sampled_from([SERVER, CLIENT]), st.integers(0, 255), st.binary(max_size=40))
def test_any_bytes_are_taken_or_refused(sender: str, first: int, body: bytes) -> None:
    try:
        packet = DECODERS[sender](first, body)
    except Broken as broken:
        assert broken.code in (0x81, 0x82, 0x84, 0x94, 0x99)
    else:
        # The encoder makes the shortest form of what was read.
        assert _decoded(build5.encode(packet), sender) == packet


# What CONNECT and CONNACK rule out

ASKED = {
    "a packet of that size": (0x95, [(0x27, 10)], Packet("PUBLISH", topic=b"a", payload=b"x" * 9)),
    "an alias": (0x94, [], Packet("PUBLISH", topic=b"a", properties=_properties((0x23, 1)))),
    "an alias above": (
        0x94,
        [(0x22, 4)],
        Packet("PUBLISH", topic=b"a", properties=_properties((0x23, 5))),
    ),
    "a reason string": (
        0x82,
        [(0x17, 0)],
        Packet("PUBACK", 1, properties=_properties((0x1F, b""))),
    ),
    "response information": (0x82, [], Packet("CONNACK", properties=_properties((0x1A, b"")))),
    "AUTH": (0x82, [], Packet("AUTH", code=0x18, properties=_properties((0x15, b"m")))),
    "AUTH of length 0": (0x82, [], Packet("AUTH")),
    "another method": (
        0x82,
        [(0x15, b"n")],
        Packet("AUTH", code=0x18, properties=_properties((0x15, b"m"))),
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_connect_rules_out(what: str) -> None:
    code, asked, packet = ASKED[what]
    size = len(build5.encode(packet))
    with pytest.raises(Broken) as broken:
        check_server(packet, size, _properties(*asked))
    assert broken.value.code == code
    every = _properties((0x27, size), (0x22, 5), (0x17, 1), (0x19, 1), (0x15, b"m"))
    check_server(packet, size, every)


ANNOUNCED = {
    "a packet of that size": (0x95, [(0x27, 10)], Packet("PUBLISH", topic=b"a", payload=b"x" * 9)),
    "an alias": (0x94, [], Packet("PUBLISH", topic=b"a", properties=_properties((0x23, 1)))),
    "QoS 2": (0x9B, [(0x24, 1)], Packet("PUBLISH", 1, b"a", qos=2)),
    "RETAIN": (0x9A, [(0x25, 0)], Packet("PUBLISH", topic=b"a", retain=1)),
    "$share": (0x9E, [(0x2A, 0)], Packet("SUBSCRIBE", 1, filters=(Filter(b"$share/g/a"),))),
    "a wildcard": (0xA2, [(0x28, 0)], Packet("SUBSCRIBE", 1, filters=(Filter(b"a/+"),))),
    "an identifier": (
        0xA1,
        [(0x29, 0)],
        Packet("SUBSCRIBE", 1, properties=_properties((0x0B, 1)), filters=(Filter(b"a"),)),
    ),
}


@pytest.mark.parametrize("what", ANNOUNCED)
def test_what_connack_rules_out(what: str) -> None:
    code, announced, packet = ANNOUNCED[what]
    size = len(build5.encode(packet))
    with pytest.raises(Broken) as broken:
        check_client(packet, size, NONE, _properties(*announced))
    assert broken.value.code == code
    check_client(packet, size, NONE, _properties((0x27, size), (0x22, 1)))


def test_an_expiry_that_connect_did_not_have() -> None:
    packet = Packet("DISCONNECT", properties=_properties((0x11, 5)))
    with pytest.raises(Broken, match=r"3\.14\.2\.2\.2"):
        check_client(packet, 9, NONE, NONE)
    check_client(packet, 9, _properties((0x11, 1)), NONE)
    check_client(packet._replace(properties=_properties((0x11, 0))), 9, NONE, NONE)


def test_forms_of_an_acknowledgement() -> None:
    assert build5.ack("PUBACK", 7).hex() == "40020007"
    assert build5.ack("PUBREL", 7, 0).hex() == "6203000700"
    assert build5.ack("PUBCOMP", 7, 0x92, []).hex() == "700400079200"
    assert build5.ending("DISCONNECT").hex() == "e000"
    assert build5.ending("DISCONNECT", 0x8B).hex() == "e0018b"
    assert peer.text(b"ab").hex() == "00026162"
