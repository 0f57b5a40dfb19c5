"""The decoder refuses what MQTT forbids, and names the reason code.

That it takes what MQTT allows is in all other tests.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packets import build, strict
from packets.agreed import check_client
from packets.properties import CLIENT, NONE, SERVER, Properties, properties
from packets.strict import Broken, Filter, Packet


def _has(*pairs: tuple[int, Any]) -> Properties:
    return properties(pairs)


def _decoded(data: bytes, sender: str, level: int = 5) -> Packet:
    ((first, body),), rest = strict.split(data)
    assert rest == b""
    return strict.packet(first, body, level, sender)


HELLO = "00 04 4d 51 54 54 05"  # protocol name and version
HELLO_4 = "00 04 4d 51 54 54 04"
# (sender, packet, reason code, words of the text), at level 5. test_client5_errors has the client
# refuse those of a server.
REFUSED = [
    # the fixed header
    (SERVER, "00 00", 0x81, "type 0"),
    (SERVER, "10 00", 0x82, "no server sends CONNECT"),
    (SERVER, "c0 00", 0x82, "no server sends PINGREQ"),
    (CLIENT, "20 03 00 00 00", 0x82, "no client sends CONNACK"),
    (SERVER, "21 03 00 00 00", 0x81, "flags"),
    (SERVER, "60 02 00 01", 0x81, "PUBREL: flags"),
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
    (SERVER, "62 03 00 07 80", 0x82, "reason code 0x80"),
    (SERVER, "90 04 00 07 00 03", 0x82, "reason code 0x03"),
    (SERVER, "b0 04 00 07 00 01", 0x82, "reason code 0x01"),
    (SERVER, "90 03 00 07 00", 0x82, "no reason code"),
    (SERVER, "e0 01 04", 0x82, "no server sends reason code 0x04"),
    (CLIENT, "e0 01 8e", 0x82, "no client sends reason code 0x8e"),
    (SERVER, "f0 06 19 04 15 00 01 6d", 0x82, "no server sends reason code 0x19"),
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
    (SERVER, "e0 07 8b 05 11 00 00 00 01", 0x82, "no server sends SESSION_EXPIRY"),
    (CLIENT, "30 07 00 01 61 02 01 01 ff", 0x99, "said to be UTF-8"),
    # CONNECT
    (CLIENT, "10 0d 00 04 4d 51 54 54 04 02 00 00 00 00 00", 0x84, "b'MQTT' 4"),
    (CLIENT, f"10 0d {HELLO} 03 00 00 00 00 00", 0x81, "reserved flag"),
    (CLIENT, f"10 0d {HELLO} 0a 00 00 00 00 00", 0x81, "QoS or RETAIN of no will"),
    (CLIENT, f"10 12 {HELLO} 06 00 00 00 00 00 00 00 00 00 00", 0x82, "will topic: empty"),
    (CLIENT, f"10 12 {HELLO} 02 00 00 05 18 00 00 00 01 00 00", 0x81, "cannot carry WILL_DELAY"),
    (CLIENT, f"10 11 {HELLO} 02 00 00 04 16 00 01 61 00 00", 0x82, "without a method"),
    # SUBSCRIBE and UNSUBSCRIBE
    (CLIENT, "82 03 00 07 00", 0x82, "no topic filter"),
    (CLIENT, "82 07 00 07 00 00 01 61 03", 0x82, "QoS or Retain Handling 3"),
    (CLIENT, "82 07 00 07 00 00 01 61 40", 0x81, "reserved options"),
    (CLIENT, "82 08 00 07 00 00 02 61 23 00", 0x82, "not the last level"),
    (CLIENT, "82 08 00 07 00 00 02 61 2b 00", 0x82, "not a whole level"),
    (CLIENT, "82 10 00 07 00 00 0a 24 73 68 61 72 65 2f 67 2f 23 04", 0x82, "No Local"),
]
REFUSED_4 = [
    (SERVER, "20 03 00 00 00", 0x81, "1 bytes too many"),
    (SERVER, "20 02 02 00", 0x81, "reserved flags"),
    (SERVER, "20 02 01 05", 0x82, "session present, and refused"),
    (SERVER, "40 03 00 07 00", 0x81, "1 bytes too many"),
    (SERVER, "6a 02 00 07", 0x81, "flags"),
    (SERVER, "90 02 00 07", 0x82, "no reason code"),
    (SERVER, "90 03 00 07 03", 0x82, "reason code 0x03"),
    (SERVER, "b0 03 00 07 00", 0x81, "1 bytes too many"),
    (SERVER, "e0 00", 0x82, "no server sends DISCONNECT at level 4"),
    (CLIENT, "f0 00", 0x82, "no client sends AUTH at level 4"),
    (CLIENT, "e0 01 04", 0x81, "1 bytes too many"),
    (CLIENT, f"10 10 {HELLO_4} 42 00 00 00 01 61 00 01 70", 0x81, "a password without a user"),
    (CLIENT, f"10 0c {HELLO_4} 00 00 00 00 00", 0x85, "an empty identifier"),
    (CLIENT, f"10 0d {HELLO} 02 00 00 00 00 00", 0x84, "b'MQTT' 5"),
    (CLIENT, "82 06 00 07 00 01 61 04", 0x81, "reserved options"),
]


@pytest.mark.parametrize(
    ("sender", "data", "code", "words", "level"),
    [(*each, 5) for each in REFUSED] + [(*each, 4) for each in REFUSED_4],
)
def test_what_is_refused(sender: str, data: str, code: int, words: str, level: int) -> None:
    with pytest.raises(Broken) as broken:
        _decoded(bytes.fromhex(data), sender, level)
    assert words in str(broken.value)
    assert broken.value.code == code


def test_a_fixed_header() -> None:
    assert strict.header(b"") is strict.header(b"\x30") is strict.header(b"\x30\x80") is None
    assert strict.header(b"\x30\xff\xff\xff\x7f") == strict.Header(0x30, 5, 268_435_455)
    assert strict.header(b"\x30\x80\x00") == strict.Header(0x30, 3, 0)
    for data, words in ((b"\x30\x80\x80\x80\x80", "five bytes"), (b"\x30\x80\x00", "needless")):
        with pytest.raises(Broken, match=words):
            strict.split(data)


@given(
    st.sampled_from([SERVER, CLIENT]),
    st.sampled_from([4, 5]),
    st.integers(0, 255),
    st.binary(max_size=40),
)
def test_any_bytes_are_taken_or_refused(sender: str, level: int, first: int, body: bytes) -> None:
    try:
        packet = strict.packet(first, body, level, sender)
    except Broken as broken:
        assert broken.code in (0x81, 0x82, 0x84, 0x94, 0x99)
    else:
        if level == 5:  # the encoder makes the shortest form of what was read
            assert _decoded(build.encode(packet), sender) == packet


A = Packet("PUBLISH", topic=b"a")
ALIAS = A._replace(properties=_has((0x23, 5)))
NUMBERED = Packet("SUBSCRIBE", 1, filters=(Filter(b"a"),), properties=_has((0x0B, 1)))
# What CONNACK rules out for a client: the code, what CONNACK says, a packet, what would allow it.
AGREED: list[tuple[int, list[tuple[int, Any]], Packet, list[tuple[int, Any]]]] = [
    (0x95, [(0x27, 10)], A._replace(payload=b"x" * 9), []),
    (0x94, [], ALIAS, [(0x22, 5)]),
    (0x9B, [(0x24, 1)], A._replace(pid=1, qos=2), []),
    (0x9A, [(0x25, 0)], A._replace(retain=1), []),
    (0x9E, [(0x2A, 0)], Packet("SUBSCRIBE", 1, filters=(Filter(b"$share/g/a"),)), []),
    (0xA2, [(0x28, 0)], Packet("SUBSCRIBE", 1, filters=(Filter(b"a/+"),)), []),
    (0xA1, [(0x29, 0)], NUMBERED, []),
]


def test_what_connack_rules_out() -> None:
    for code, limits, packet, allowed in AGREED:
        size = len(build.encode(packet))
        with pytest.raises(Broken) as broken:
            check_client(packet, size, NONE, properties(limits))
        assert broken.value.code == code
        check_client(packet, size, NONE, properties(allowed))
