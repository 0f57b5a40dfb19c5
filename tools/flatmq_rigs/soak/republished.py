"""The QoS 2 messages that are published again after their PUBREL, which delivers them twice.

The broker: a sender must not do that [MQTT-4.3.3-1], and a receiver that has answered the PUBREL
must take such a message for a new one. mosquitto does it (2.0.11, seen; the code of its newest
version is the same): a connection that breaks before mosquitto has sent PUBREL a second time makes
it forget that there was a PUBREC.

The client: if a CONNECT had no answer, the session that the broker has now may be another one,
without the message. Publishing it again is the only way not to lose it.
"""

from __future__ import annotations

import os
import re
import threading

_MANY = 10_000  # PUBRELs; an identifier is used again after three times as many


class Log:
    """The log of a mosquitto, with its packets.

    mosquitto writes it to the descriptor `output`. It shows how many QoS 2 messages mosquitto
    has `republished` to a client, but not which; and how many this client has published `again`,
    and on which `connections`. The `version` is that of mosquitto. Call `stop` once it has ended.
    """

    def __init__(self, client_id: str) -> None:
        self.version = ""
        self.republished = 0
        self.again = 0
        self.connections: set[int] = set()
        self._packet = re.compile(
            rf"(Sending|Received) ([A-Z]+) (?:to|from) {re.escape(client_id)}"
            r"(?: \((?:d([01]), q2, r[01], )?(?:m|Mid: )(\d+))?"
        )
        # By identifier, how many PUBRELs there had been by then.
        self._released: dict[str, dict[str, int]] = {"Sending": {}, "Received": {}}
        self._count = 0
        self._connections = 0
        self._lives: dict[str, list[str]] = {}  # what happened to a message to the client
        self.suspects: list[list[str]] = []  # lives of those sent again though PUBREC had come
        source, self.output = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def _read(self, source: int) -> None:
        with open(source, errors="replace") as lines:
            for line in lines:
                self.take(line)

    def take(self, line: str) -> None:
        if not self.version:
            found = re.search(r"mosquitto version \S+", line)
            self.version = found[0] if found else ""
        packet = self._packet.search(line)
        if not packet:
            return
        way, kind, dup, pid = packet.groups()
        self._note(way, kind, dup or "", pid)
        released = self._released[way]
        if kind == "PUBREL":
            self._count += 1
            released[pid] = self._count
        elif kind == "PUBLISH" and dup:
            # After many others the identifier is that of another message, whose first PUBLISH the
            # broker may never have got.
            was = self._count - released.pop(pid, -_MANY) < _MANY
            if dup == "1" and was and way == "Sending":
                self.republished += 1
            elif dup == "1" and was:
                self.again += 1
                self.connections.add(self._connections)

    def _note(self, way: str, kind: str, dup: str, pid: str) -> None:
        self._connections += kind == "CONNACK"
        if not pid or (way == "Sending") != (kind in ("PUBLISH", "PUBREL")):
            return
        if kind == "PUBLISH" and dup != "1":
            self._lives[pid] = []
        life = self._lives.setdefault(pid, [])
        has_come = any("PUBREC" in each for each in life)
        if dup == "1" and has_come and not any(life is each for each in self.suspects):
            self.suspects.append(life)
        life.append(f"{self._connections}: {kind}{' DUP' * (dup == '1')}")

    def stop(self) -> None:
        """Read the rest."""
        os.close(self.output)
        self._thread.join()
