"""The packets of a test: reads what a client wrote, and builds what a broker sends.

Written from the standard and apart from flatmq, so that a mistake in one shows in the other. Other
helpers build their packets on `packet`, `length` and `text`.
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
        n, size = 0, 1
        while True:
            if size >= len(data):
                return packets, data
            assert size < 5, "a Remaining Length of five bytes"
            byte = data[size]
            n += (byte % 128) * 128 ** (size - 1)
            size += 1
            if byte < 128:
                break
        if len(data) < size + n:
            return packets, data
        packets.append(Packet(data[0], data[size : size + n]))
        data = data[size + n :]


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


def length(n: int) -> bytes:
    """Return a Remaining Length, or another variable byte integer, in its shortest form."""
    encoded = bytearray()
    while not encoded or n:
        encoded.append(n % 128 + (128 if n > 127 else 0))
        n //= 128
    return bytes(encoded)


def text(value: bytes) -> bytes:
    """Return a string or binary data, with its length before it (section 1.5.3)."""
    return struct.pack(">H", len(value)) + value


def packet(first: int, body: bytes = b"") -> bytes:
    """Return a packet with that first byte and body."""
    return bytes([first]) + length(len(body)) + body


def publish(
    topic: bytes, payload: bytes = b"", qos: int = 0, pid: int = 0, *, retain=False, dup=False
) -> bytes:
    """A PUBLISH."""
    first = 0x30 + 8 * dup + 2 * qos + retain
    number = struct.pack(">H", pid) if qos else b""
    return packet(first, text(topic) + number + payload)


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
