"""The broker's end of a connection, for tests: reads what a client wrote, builds what it gets.

Written from the standard and apart from flatmq, so that a mistake in one shows in the other.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class Packet(NamedTuple):
    """A packet: its first byte and what comes after the Remaining Length."""

    first: int
    body: bytes

    @property
    def pid(self) -> int:
        """The packet identifier of anything but a PUBLISH."""
        return struct.unpack_from(">H", self.body)[0]


class Publish(NamedTuple):
    """A PUBLISH, taken apart; `pid` is 0 at QoS 0."""

    dup: bool
    qos: int
    retain: bool
    topic: bytes
    pid: int
    payload: bytes


def split(data: bytes) -> tuple[list[Packet], bytes]:
    """The whole packets at the start of `data`, and the rest."""
    packets = []
    while True:
        length, size = 0, 1
        while True:
            if size >= len(data):
                return packets, data
            assert size < 5, "a Remaining Length of five bytes"
            byte = data[size]
            length += (byte % 128) * 128 ** (size - 1)
            size += 1
            if byte < 128:
                break
        if len(data) < size + length:
            return packets, data
        packets.append(Packet(data[0], data[size : size + length]))
        data = data[size + length :]


def take_apart(packet: Packet) -> Publish:
    """The fields of a PUBLISH."""
    assert packet.first >> 4 == 3
    qos = packet.first >> 1 & 3
    (n,) = struct.unpack_from(">H", packet.body)
    topic, rest = packet.body[2 : 2 + n], packet.body[2 + n :]
    assert len(topic) == n
    pid = 0
    if qos:
        (pid,) = struct.unpack_from(">H", rest)
        rest = rest[2:]
    return Publish(bool(packet.first & 8), qos, bool(packet.first & 1), topic, pid, rest)


def packet(first: int, body: bytes = b"") -> bytes:
    """A packet of that first byte and body."""
    length, n = b"", len(body)
    while not length or n:
        length += bytes([n % 128 + (128 if n > 127 else 0)])
        n //= 128
    return bytes([first]) + length + body


def publish(
    topic: bytes, payload: bytes = b"", qos: int = 0, pid: int = 0, *, retain=False, dup=False
) -> bytes:
    """A PUBLISH."""
    first = 0x30 + 8 * dup + 2 * qos + retain
    number = struct.pack(">H", pid) if qos else b""
    return packet(first, struct.pack(">H", len(topic)) + topic + number + payload)


def connack(code: int = 0, *, present: bool = False) -> bytes:
    """A CONNACK."""
    return packet(0x20, bytes([present, code]))


def puback(pid: int) -> bytes:
    """A PUBACK."""
    return packet(0x40, struct.pack(">H", pid))


def pubrec(pid: int) -> bytes:
    """A PUBREC."""
    return packet(0x50, struct.pack(">H", pid))


def pubrel(pid: int) -> bytes:
    """A PUBREL."""
    return packet(0x62, struct.pack(">H", pid))


def pubcomp(pid: int) -> bytes:
    """A PUBCOMP."""
    return packet(0x70, struct.pack(">H", pid))


def suback(pid: int, *codes: int) -> bytes:
    """A SUBACK with a return code for each filter."""
    return packet(0x90, struct.pack(">H", pid) + bytes(codes))


def unsuback(pid: int) -> bytes:
    """An UNSUBACK."""
    return packet(0xB0, struct.pack(">H", pid))


PINGRESP = packet(0xD0)
