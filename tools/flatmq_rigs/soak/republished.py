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


class Log:
    """The log of a mosquitto, with its packets.

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
