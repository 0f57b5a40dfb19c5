"""The QoS 2 messages that the broker publishes again after it has sent their PUBREL.

A sender must not do that [MQTT-4.3.3-1], and a receiver that has answered the PUBREL must take
such a message for a new one. mosquitto does it (2.0.11, seen; the code of its newest version is
the same): a connection that breaks before mosquitto has sent PUBREL a second time makes it forget
that there was a PUBREC.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable

_PUBLISH = 0x30
_PUBREL = 0x62
_QOS_2 = 0x04


class Republished:
    """An observer of what a broker sends to one client, connection after connection."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()  # of the messages: see plan.py
        self._published: dict[int, int] = {}  # packet identifier: number of the message
        self._released: dict[int, int] = {}  # the same, once there was a PUBREL

    def connection(self) -> Callable[[bytes], None]:
        """Return a function that takes the bytes of a new connection, in any pieces."""
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


class Log:
    """The log of a mosquitto, for a link whose bytes say nothing.

    mosquitto writes it to the descriptor `output`. It shows how many QoS 2 messages mosquitto
    has `republished` to a client, but not which. The `version` is that of mosquitto. Call
    `stop` once it has ended.
    """

    def __init__(self, client_id: str) -> None:
        self.version = ""
        self.republished = 0
        self._sent = re.compile(
            rf"Sending (PUBREL|PUBLISH) to {re.escape(client_id)} "
            r"\((?:d([01]), q2, r[01], )?m(\d+)"
        )
        self._released: set[str] = set()  # packet identifiers
        source, self.output = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def _read(self, source: int) -> None:
        with open(source, errors="replace") as lines:
            for line in lines:
                self.take(line)

    def take(self, line: str) -> None:
        """Take one line."""
        if not self.version:
            found = re.search(r"mosquitto version \S+", line)
            self.version = found[0] if found else ""
        sent = self._sent.search(line)
        if not sent:
            return
        kind, dup, pid = sent.groups()
        if kind == "PUBREL":
            self._released.add(pid)
        elif dup and pid in self._released:
            self._released.discard(pid)
            self.republished += dup == "1"

    def stop(self) -> None:
        """Read the rest."""
        os.close(self.output)
        self._thread.join()


def _end(buf: bytearray, at: int) -> int:
    """Return where the packet that begins at `at` ends; 0 while it is incomplete."""
    length = shift = 0
    for i in range(at + 1, min(at + 5, len(buf))):
        length |= (buf[i] & 127) << shift
        shift += 7
        if buf[i] < 128:
            end = i + 1 + length
            return end if end <= len(buf) else 0
    return 0
