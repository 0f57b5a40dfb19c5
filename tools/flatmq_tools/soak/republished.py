"""Which QoS 2 messages the broker publishes again after it has sent their PUBREL.

A sender must not do that [MQTT-4.3.3-1], and a receiver that has answered the PUBREL must take
such a message for a new one. mosquitto does it (2.0.11, seen; the code of its newest version is
the same): a connection that breaks before mosquitto has sent PUBREL a second time makes it forget
that there was a PUBREC.
"""

from __future__ import annotations

from collections.abc import Callable

_PUBLISH = 0x30
_PUBREL = 0x62
_QOS_2 = 0x04


class Republished:
    """Looks at what a broker sends to one client, connection after connection."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()  # of the messages: see plan.py
        self._published: dict[int, int] = {}  # packet identifier: number of the message
        self._released: dict[int, int] = {}  # the same, once there was a PUBREL

    def connection(self) -> Callable[[bytes], None]:
        """What the bytes of a new connection are given to, in any pieces."""
        rest = bytearray()

        def take(data: bytes) -> None:
            rest.extend(data)
            at = 0
            while True:
                end = _end(rest, at)
                if not end:
                    break
                self._packet(rest, at, end)
                at = end
            del rest[:at]

        return take

    def _packet(self, buf: bytearray, at: int, end: int) -> None:
        first = buf[at]
        if first == _PUBREL:
            pid = int.from_bytes(buf[end - 2 : end], "big")
            if pid in self._published:
                self._released[pid] = self._published[pid]
        elif first & 0xF0 == _PUBLISH and first & _QOS_2:
            at += 1
            while buf[at] > 127:
                at += 1
            at += 3 + int.from_bytes(buf[at + 1 : at + 3], "big")
            pid = int.from_bytes(buf[at : at + 2], "big")
            number = int.from_bytes(buf[at + 2 : at + 6], "big")
            if self._released.pop(pid, None) == number:
                self.numbers.add(number)
            self._published[pid] = number


def _end(buf: bytearray, at: int) -> int:
    """Where the packet that begins at `at` ends; 0 while it is not all there."""
    length = shift = 0
    for i in range(at + 1, min(at + 5, len(buf))):
        length |= (buf[i] & 127) << shift
        shift += 7
        if buf[i] < 128:
            end = i + 1 + length
            return end if end <= len(buf) else 0
    return 0
