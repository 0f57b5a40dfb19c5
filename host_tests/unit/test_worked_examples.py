"""The worked examples of documents that explain MQTT, and the mistakes in them.

Two pages of 1999 (the fixed header of 16 July, PUBLISH of 19 October), a vendor's page on PUBLISH
in MQTT 3.1, a chapter on PUBLISH in MQTT 3.1.1, and a broker's manual page on MQTT 3.1. Where a
test says "error", the document is wrong and MQTT 3.1.1 is right.
"""

from __future__ import annotations

from typing import Any

import pytest

import peer
from unit.fake_link import Bench, Clock


class Inbox(list):
    """A handler that keeps DUP, QoS, RETAIN and the payload of each message."""

    def __call__(self, m: Any) -> None:
        self.append((m.dup, m.qos, m.retain, m.payload))


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def bench(clock: Clock, inbox: Inbox) -> Bench:
    """A client that is online, and hands everything to `inbox`."""
    bench = Bench(clock, on_message=inbox).online()
    bench.sent()
    return bench


# Topic, payload, QoS, RETAIN, packet identifier, and the PUBLISH.
PUBLISHED: list[tuple[bytes, bytes, int, bool, int, bytes]] = [
    # Error 1: the Remaining Length is 18, not 16.
    (b"sensors/temp", b"22.5", 0, False, 0, b"\x30\x12\x00\x0csensors/temp22.5"),
    # Error 2: it is 16, not 14.
    (b"status", b"online", 1, True, 1, b"\x33\x10\x00\x06status\x00\x01online"),
    (b"a/b", b"", 1, False, 10, b"\x32\x07\x00\x03a/b\x00\x0a"),
    (b"a/b", b"", 0, True, 0, b"\x31\x05\x00\x03a/b"),
    (b"t", b"", 1, False, 0x0102, b"\x32\x05\x00\x01t\x01\x02"),  # error 5: it is big-endian
]


@pytest.mark.parametrize(("topic", "payload", "qos", "retain", "pid", "wanted"), PUBLISHED)
def test_a_publish_as_bytes(
    topic: bytes, payload: bytes, qos: int, retain: bool, pid: int, wanted: bytes, bench: Bench
) -> None:
    bench.client.last_id = pid - 1
    assert bench.client.publish(topic, payload, qos, retain) == pid
    bench.client.poll()
    assert bytes(bench.stream.written[-len(wanted) :]) == wanted
    assert len(bench.sent()) == 1


def test_error_1_as_printed_the_payload_would_lose_two_bytes(bench: Bench, inbox: Inbox) -> None:
    bench.feed(b"\x30\x10\x00\x0csensors/temp22.5")
    assert inbox == [(False, 0, False, b"22")]


# Error 3: 321 is c1 02; 130, 65 is 8322.
LENGTHS = [
    (64, "40"), (127, "7f"), (128, "80 01"), (321, "c1 02"), (8322, "82 41"), (16_383, "ff 7f"),
    (16_384, "80 80 01"), (2_097_151, "ff ff 7f"), (2_097_152, "80 80 80 01"),
]  # fmt: skip


@pytest.mark.parametrize(("n", "encoded"), LENGTHS)
def test_the_table_of_remaining_lengths(n: int, encoded: str, clock: Clock) -> None:
    packet = b"\x30" + bytes.fromhex(encoded) + b"\0\1t" + bytes(n - 3)
    got: list[int] = []
    bench = Bench(clock, tx_size=n + 5, rx_size=n + 5, on_message=lambda m: got.append(len(m)))
    bench.online()
    bench.client.publish(b"t", bytes(n - 3))
    bench.client.poll()
    assert bench.stream.written.endswith(packet)
    bench.feed(packet)
    assert got == [n - 3]


def test_error_7_a_qos_2_message_is_delivered_at_once_and_exactly_once(
    bench: Bench, inbox: Inbox
) -> None:
    payloads = lambda: [message[3] for message in inbox]  # noqa: E731
    bench.feed(peer.publish(b"t", b"first", 2, 9))
    assert payloads() == [b"first"], "delivery does not wait for the release"
    bench.feed(peer.publish(b"t", b"first", 2, 9, dup=True))
    assert payloads() == [b"first"], "the identifier is enough to know it again"
    bench.feed(peer.pubrel(9))
    bench.feed(peer.publish(b"t", b"second", 2, 9))
    assert payloads() == [b"first", b"second"], "released, the identifier is free"
    assert bench.sent() == [(f, b"\0\x09") for f in (0x50, 0x50, 0x70, 0x50)]


# Error 6: by RETAIN the application knows a live message from the last known good one. Which it
# is, is for the broker to say [MQTT-3.3.1-8] [MQTT-3.3.1-9]; all flags arrive as they are.
@pytest.mark.parametrize("flags", range(16))
def test_flags_of_a_publish_that_arrives(flags: int, bench: Bench, inbox: Inbox) -> None:
    dup, qos, retain = bool(flags & 8), flags >> 1 & 3, bool(flags & 1)
    bench.feed(peer.packet(0x30 | flags, b"\0\1t\0\x0a" + bytes(100)))
    if qos == 3:  # [MQTT-3.3.1-4]
        assert (bench.client.error.kind, bench.client.connected) == ("protocol", False)
        assert inbox == []
        return
    assert [message[:3] for message in inbox] == [(dup, qos, retain)]
    assert len(inbox[0][3]) == (100 if qos else 102), "what the Remaining Length leaves"
    assert bench.sent() == [[], [(0x40, b"\0\x0a")], [(0x50, b"\0\x0a")]][qos]
    # Nobody may send DUP at QoS 0 [MQTT-3.3.1-2], and it harms nobody: it is counted.
    assert bench.client.stats.dup0 == (dup and not qos)
    assert bench.client.error is None


def test_identifier_0_is_invalid_and_never_given_out(bench: Bench) -> None:
    bench.client.last_id = 65_534
    pids = [bench.client.publish(b"t", b"", 1) for _ in range(3)]
    assert pids == [65_535, 1, 2]
    bench.feed(peer.publish(b"t", b"", 1, 0))
    assert bench.client.error.kind == "protocol"


# CONNECT


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(("version", "name"), [(3, b"\0\6MQIsdp\3"), (4, b"\0\4MQTT\4")])
def test_connect_of_each_version(version: int, name: bytes, clean: bool, clock: Clock) -> None:
    bench = Bench(clock, version=version, clean_session=clean, keepalive=0x0102)
    wanted = name + bytes([2 * clean]) + b"\1\2" + b"\0\4unit"  # error 5: it is big-endian
    assert bench.greet().body == wanted
