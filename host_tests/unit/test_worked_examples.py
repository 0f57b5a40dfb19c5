"""The worked examples of documents that explain MQTT, and the mistakes in them.

Two pages of 1999 (the fixed header of 16 July, PUBLISH of 19 October), a vendor's page on PUBLISH
in MQTT 3.1, a chapter on PUBLISH in MQTT 3.1.1, and a broker's manual page on MQTT 3.1. Where a
test says "error", the document is wrong and MQTT 3.1.1 is right.
"""

from __future__ import annotations

import pytest

import peer
from flatmq import wire
from flatmq.session import Session
from flatmq.topic import is_name, matches
from flatmq.wire import is_filter
from unit.fake_link import Bench, Clock


def length(n: int) -> bytes:
    """Remaining Length `n` as bytes."""
    buf = bytearray(4)
    return bytes(buf[: wire.put_length(buf, 0, n)])


def made(topic: bytes, payload: bytes, qos: int = 0, retain: bool = False, pid: int = 1) -> bytes:
    """A PUBLISH as bytes."""
    s = Session(64, 1, pid - 1)
    s.publish(topic, payload, qos, retain)
    return bytes(s.buf[: s.end])


# The known errors


def test_error_1_sensors_temp_has_a_remaining_length_of_18_not_16() -> None:
    packet = made(b"sensors/temp", b"22.5")
    assert packet == bytes([0x30, 0x12, 0x00, 0x0C]) + b"sensors/temp" + b"22.5"
    assert packet[1] != 0x10


def test_error_1_as_printed_the_payload_would_lose_two_bytes(clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append((m.topic, m.payload))).online()
    bench.feed(bytes([0x30, 0x10, 0x00, 0x0C]) + b"sensors/temp" + b"22.5")
    assert got == [(b"sensors/temp", b"22")]


def test_error_2_status_online_has_a_remaining_length_of_16_not_14(clock: Clock) -> None:
    wanted = bytes([0x33, 0x10, 0x00, 0x06]) + b"status" + b"\x00\x01" + b"online"
    assert made(b"status", b"online", 1, True) == wanted
    assert wanted[1] != 0x0E
    bench = Bench(clock).online()
    pid = bench.client.publish(b"status", b"online", qos=1, retain=True)
    bench.client.poll()
    (sent,) = bench.sent()
    assert peer.packet(*sent) == wanted[:10] + pid.to_bytes(2, "big") + b"online"


def test_error_3_321_is_c1_02_not_130_65() -> None:
    assert length(321) == b"\xc1\x02"
    assert wire.get_length(b"\xc1\x02", 0, 2) >> 2 == 321
    assert wire.get_length(bytes([130, 65]), 0, 2) >> 2 == 130 - 128 + 65 * 128 == 8322


@pytest.mark.parametrize(
    ("n", "encoded"),
    [
        (0, "00"),
        (64, "40"),
        (127, "7f"),
        (128, "80 01"),
        (16_383, "ff 7f"),
        (16_384, "80 80 01"),
        (2_097_151, "ff ff 7f"),
        (2_097_152, "80 80 80 01"),
        (268_435_455, "ff ff ff 7f"),
    ],
)
def test_4_the_table_of_remaining_lengths_is_right(n: int, encoded: str) -> None:
    wanted = bytes.fromhex(encoded)
    assert length(n) == wanted
    assert wire.get_length(wanted, 0, len(wanted)) == n << 2 | len(wanted) - 1


def test_error_5_integers_are_big_endian_not_little(clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, keepalive=0x0102, on_message=got.append).online()
    assert bytes(bench.stream.written)[10:12] == b"\x01\x02"
    bench.feed(peer.packet(0x32, b"\x00\x01t" + b"\x00\x0a"))
    assert len(got) == 1
    assert bench.sent() == [(0x40, b"\x00\x0a")]
    assert made(b"t", b"", 1, pid=0x000A)[-2:] == b"\x00\x0a"


@pytest.mark.parametrize("retain", [False, True])
def test_error_6_retain_tells_the_application_live_from_last_known_good(
    retain: bool, clock: Clock
) -> None:
    # Which it is, is for the broker to say [MQTT-3.3.1-8] [MQTT-3.3.1-9]; both arrive as they are.
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append((m.payload, m.retain))).online()
    bench.feed(peer.publish(b"valve", b"open", retain=retain))
    assert got == [(b"open", retain)]


def test_error_7_a_qos_2_message_is_delivered_at_once_and_exactly_once(clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append(m.payload)).online()
    bench.feed(peer.publish(b"t", b"first", 2, 9))
    assert got == [b"first"], "delivery does not wait for the release"
    bench.feed(peer.publish(b"t", b"first", 2, 9, dup=True))
    assert got == [b"first"], "the identifier is enough to know it again"
    bench.feed(peer.pubrel(9))
    bench.feed(peer.publish(b"t", b"second", 2, 9))
    assert got == [b"first", b"second"], "released, the identifier is free"
    assert bench.sent() == [(f, b"\0\x09") for f in (0x50, 0x50, 0x70, 0x50)]


# PUBLISH, 1999, 3.1 and 3.1.1


def test_variable_header_of_a_b_at_qos_1_with_identifier_10() -> None:
    header = bytes([0x00, 0x03, 0x61, 0x2F, 0x62, 0x00, 0x0A])
    assert made(b"a/b", b"", 1, pid=10) == b"\x32\x07" + header


def test_fixed_header_at_qos_1_first_sent_and_not_retained(clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.client.publish(b"a/b", b"", qos=1)
    bench.client.poll()
    (sent,) = bench.sent()
    assert sent.first == 0b0011_0010


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("dup", [False, True])
def test_flags_of_a_publish_that_arrives(qos: int, retain: bool, dup: bool, clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append((m.dup, m.qos, m.retain))).online()
    bench.feed(peer.packet(0x30 | dup << 3 | qos << 1 | retain, b"\0\1t\0\1"))
    assert got == [(dup, qos, retain)]
    # Nobody may send DUP at QoS 0 [MQTT-3.3.1-2], and it harms nobody: it is counted.
    assert bench.client.stats.dup0 == (dup and not qos)
    assert bench.client.error is None


@pytest.mark.parametrize("flags", [0b0110, 0b0111, 0b1110, 0b1111])
def test_both_qos_bits_close_the_connection(flags: int, clock: Clock) -> None:
    bench = Bench(clock, on_message=pytest.fail).online()
    bench.feed(peer.packet(0x30 | flags, b"\0\1t\0\1"))  # [MQTT-3.3.1-4]
    assert (bench.client.error.kind, bench.client.connected) == ("protocol", False)


@pytest.mark.parametrize(("qos", "answer"), [(0, []), (1, [0x40]), (2, [0x50])])
def test_expected_responses(qos: int, answer: list, clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.feed(peer.publish(b"a/b", b"x", qos, 10))
    assert bench.sent() == [(first, b"\0\x0a") for first in answer]


def test_identifier_0_is_invalid_and_never_given_out(clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.client.last_id = 65_534
    pids = [bench.client.publish(b"t", b"", 1) for _ in range(3)]
    assert pids == [65_535, 1, 2]
    bench.feed(peer.publish(b"t", b"", 1, 0))
    assert bench.client.error.kind == "protocol"


def test_a_payload_may_be_empty(clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append((m.payload, len(m)))).online()
    bench.feed(peer.publish(b"a/b"))
    assert got == [(b"", 0)]
    assert made(b"a/b", b"", retain=True) == b"\x31\x05\x00\x03a/b"


def test_the_payload_is_what_the_remaining_length_leaves(clock: Clock) -> None:
    got: list = []
    bench = Bench(clock, on_message=lambda m: got.append(len(m))).online()
    for qos in (0, 1, 2):
        bench.feed(peer.packet(0x30 | qos << 1, b"\0\3a/b\0\x0a" + bytes(100)))
    assert got == [102, 100, 100]


# The fixed header, 1999


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("CONNECT", 1),
        ("CONNACK", 2),
        ("PUBLISH", 3),
        ("PUBACK", 4),
        ("PUBREC", 5),
        ("PUBREL", 6),
        ("PUBCOMP", 7),
        ("SUBSCRIBE", 8),
        ("SUBACK", 9),
        ("UNSUBSCRIBE", 10),
        ("UNSUBACK", 11),
        ("PINGREQ", 12),
        ("PINGRESP", 13),
        ("DISCONNECT", 14),
    ],
)
def test_the_table_of_types(name: str, number: int, clock: Clock) -> None:
    """One exchange in which a client and its broker send every type there is."""
    bench = Bench(clock)
    seen = {bench.greet().first >> 4: "CONNECT"}

    def arrives(packet: bytes, name: str) -> None:
        seen[packet[0] >> 4] = name
        bench.feed(packet)
        assert bench.client.error is None

    def leaves(*names: str) -> None:
        bench.client.poll()
        packets = bench.sent()
        assert len(packets) == len(names)
        seen.update({p.first >> 4: n for p, n in zip(packets, names, strict=True)})

    client = bench.client
    arrives(peer.packet(0x20, b"\0\0"), "CONNACK")
    client.last_id = 6
    client.subscribe(b"t", print)
    leaves("SUBSCRIBE")
    arrives(peer.packet(0x90, b"\0\7\0"), "SUBACK")
    client.unsubscribe(b"t")
    leaves("UNSUBSCRIBE")
    arrives(peer.packet(0xB0, b"\0\x08"), "UNSUBACK")
    assert client.publish(b"t", b"", 1) == 9
    assert client.publish(b"t", b"", 2) == 10
    leaves("PUBLISH", "PUBLISH")
    arrives(peer.packet(0x40, b"\0\x09"), "PUBACK")
    arrives(peer.packet(0x50, b"\0\x0a"), "PUBREC")
    leaves("PUBREL")
    arrives(peer.packet(0x70, b"\0\x0a"), "PUBCOMP")
    client.ping()
    leaves("PINGREQ")
    arrives(peer.packet(0xD0), "PINGRESP")
    assert client.stats.strays == client.pending == 0
    client.disconnect()
    leaves("DISCONNECT")
    assert seen[number] == name
    assert set(seen) == set(range(1, 15))


@pytest.mark.parametrize("number", [0, 15])
@pytest.mark.parametrize("body", [b"", b"\0\1"])
def test_reserved_types_are_invalid(number: int, body: bytes, clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.feed(peer.packet(number << 4, body))
    assert (bench.client.error.kind, bench.client.connected) == ("protocol", False)


def test_dup_is_set_on_what_was_sent_before_and_only_there(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False).online()
    for qos in (0, 1, 2):
        bench.client.publish(b"t", b"old", qos)
    bench.client.poll()
    assert [(p.qos, p.dup) for p in bench.published()] == [(0, False), (1, False), (2, False)]
    bench.outage()
    bench.client.publish(b"t", b"new", 1)
    bench.online(present=True)
    bench.client.poll()
    got = bench.published()
    wanted = [(1, True, b"old"), (2, True, b"old"), (1, False, b"new")]
    assert [(p.qos, p.dup, p.payload) for p in got] == wanted


# Topics, the manual page


@pytest.mark.parametrize(
    ("topic_filter", "name", "wanted"),
    [
        ("sensors/+/temperature/+", "sensors/COMPUTER_NAME/temperature/HARDDRIVE_NAME", True),
        ("a/b/c/d", "a/b/c/d", True),
        ("+/b/c/d", "a/b/c/d", True),
        ("a/+/c/d", "a/b/c/d", True),
        ("a/+/+/d", "a/b/c/d", True),
        ("+/+/+/+", "a/b/c/d", True),
        ("a/b/c", "a/b/c/d", False),
        ("b/+/c/d", "a/b/c/d", False),
        ("+/+/+", "a/b/c/d", False),
        ("#", "a/b/c/d", True),
        ("a/#", "a/b/c/d", True),
        ("a/b/#", "a/b/c/d", True),
        ("a/b/c/#", "a/b/c/d", True),
        ("+/b/c/#", "a/b/c/d", True),
        ("a/+/topic", "a//topic", True),
        ("+/a/topic", "/a/topic", True),
        ("#", "/a/topic", True),
        ("/#", "/a/topic", True),
        ("a/topic/+", "a/topic/", True),
        ("a/topic/#", "a/topic/", True),
    ],
)
def test_topics_of_the_manual_page(topic_filter: str, name: str, wanted: bool) -> None:
    buf = bytearray(name.encode())
    assert is_filter(topic_filter.encode(), 0, len(topic_filter))
    assert is_name(buf, 0, len(buf))
    assert matches(topic_filter.encode(), buf, 0, len(buf)) == wanted


def test_hash_is_the_last_level() -> None:
    for wrong in (b"a/#/b", b"#/a", b"a#", b"a/b#", b"##"):
        assert not is_filter(wrong, 0, len(wrong))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_a_will_has_topic_qos_and_retain_like_any_message(
    qos: int, retain: bool, clock: Clock
) -> None:
    bench = Bench(clock)
    bench.client.set_will(b"status", b"offline", qos, retain)
    body = bench.greet().body
    assert body[7] == 0b0000_0110 | qos << 3 | retain << 5
    assert body[16:] == b"\0\6status\0\7offline"


@pytest.mark.parametrize("clean", [False, True])
def test_clean_session_is_asked_for(clean: bool, clock: Clock) -> None:
    assert Bench(clock, clean_session=clean).greet().body[7] == 2 * clean


@pytest.mark.parametrize(("version", "name"), [(3, b"\0\6MQIsdp\3"), (4, b"\0\4MQTT\4")])
def test_protocol_name_and_level(version: int, name: bytes, clock: Clock) -> None:
    assert Bench(clock, version=version).greet().body.startswith(name)
