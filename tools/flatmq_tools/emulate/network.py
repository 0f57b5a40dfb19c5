"""The network of an emulated board: an access point, behind which there is one broker.

Every name has the address of the gateway, every host at the broker's ports is the broker, and an
NTP server has this machine's time. Nothing else is reached.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable

SSIDS = {"rp2": "RP2040PY-GUEST", "esp32": "PICSimLabWifi"}  # of rp2040py and QEMU, by port
GATEWAY = "10.0.0.1"
PORTS = (1883, 8883)  # those of MQTT, without and with TLS
_DNS = 53
_NTP = 123
_NTP_EPOCH = 2_208_988_800  # 1970 in seconds since 1900


class Network:
    """The way out for a board: to `broker`, at its port, at those of MQTT, and at `ports`."""

    def __init__(self, broker: tuple[str, int], ports: Iterable[int] = ()) -> None:
        self.broker = broker
        self._ports = {broker[1], *PORTS, *ports}

    def target(self, host: str, port: int) -> tuple[str, int]:
        """Return where a connection of the board to `host` and `port` goes.

        Raises ConnectionRefusedError for a port of no broker.
        """
        if port not in self._ports:
            raise ConnectionRefusedError(f"{host}:{port}: an emulated board reaches a broker only")
        return self.broker

    def datagram(self, port: int, data: bytes) -> bytes | None:
        """Return the answer to a datagram to that port; None if there is none."""
        if port == _DNS:
            return _named(data)
        if port == _NTP and len(data) >= 48:
            return _timed(data)
        return None


def _named(query: bytes) -> bytes | None:
    """The answer to a question for a name (RFC 1035), with the gateway as its address."""
    if len(query) < 12 or query[2] & 0x80 or query[4:6] != b"\0\1":
        return None
    end = 12
    while end < len(query) and query[end]:
        end += query[end] + 1
    question = query[12 : end + 5]
    if len(question) != end - 7:
        return None
    known = question[-4:] == b"\0\1\0\1"  # an IPv4 address; for any other kind there is none
    header = query[:2] + struct.pack(">5H", 0x8180, 1, known, 0, 0)
    address = bytes(map(int, GATEWAY.split(".")))
    answer = struct.pack(">3HIH", 0xC00C, 1, 1, 60, 4) + address
    return header + question + (answer if known else b"")


def _timed(query: bytes) -> bytes:
    """The answer of a time server (RFC 5905): the time at which it was sent, and no more."""
    now = struct.pack(">Q", int((time.time() + _NTP_EPOCH) * 2**32))
    return struct.pack(">BBbb", 0x24, 1, 0, -20) + bytes(12) + now + query[40:48] + now + now
