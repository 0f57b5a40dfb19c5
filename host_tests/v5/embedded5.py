"""The embedded broker (rumqttd, as iotcore packs it) with a listener for MQTT 5.

The `flatmq` command runs it with one for 3.1.1 alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flatmq_tools import embedded_broker
from flatmq_tools.broker import LOOPBACK, START_TIMEOUT, Broker, BrokerError
from flatmq_tools.ports import free_port

TOOLS = Path(embedded_broker.__file__).parents[1]
_RETRY = 0.01  # seconds between two looks at a broker that starts
_PORT_TRIES = 5  # a port that was free may be taken before the broker binds it

CONFIG = """\
id = 0
[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = 10485760
max_segment_count = 10
[v5.1]
name = "loopback"
listen = "{address}"
next_connection_delay_ms = 1
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 1048576
max_inflight_count = 20
dynamic_filters = true
"""


class Embedded5(Broker):
    """A running broker; it forgets everything when it ends."""

    kind = "embedded"

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-embedded5-")
        self._log = Path(self._folder.name, "log.txt")
        for tries_left in reversed(range(_PORT_TRIES)):
            super().__init__(LOOPBACK, free_port())
            Path(self._folder.name, "rumqttd.toml").write_text(CONFIG.format(address=self.address))
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "flatmq_tools.embedded_broker", "rumqttd.toml"],
                    cwd=self._folder.name,
                    env={**os.environ, "PYTHONPATH": str(TOOLS)},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            if self._listens():
                return
            log_text = self.log()
            self.kill()
            if not tries_left:
                self.stop()
                raise BrokerError(f"the embedded broker on {self.address} ended:\n{log_text}")

    def _listens(self) -> bool:
        """Wait until it accepts connections or has ended, and return which."""
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self.running:
                return self._process.poll() is None
            try:
                self._process.wait(_RETRY)
            except subprocess.TimeoutExpired:
                continue
            return False
        return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""
