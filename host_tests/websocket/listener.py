"""A mosquitto that listens for WebSockets."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from flatmq_tools import broker

TRIES = 5  # a port that was free may be taken before the broker binds it


def mosquitto_with_websockets(folder: Path | None = None) -> tuple[broker.Broker, int]:
    """A broker, and the port at which it speaks MQTT over WebSocket; with TLS, if it is given a
    folder with the certificates of `certificates.write`."""
    lines = f"\ncertfile {folder}/broker.pem\nkeyfile {folder}/broker.key.pem" if folder else ""
    for left in reversed(range(TRIES)):
        port = broker.free_port()
        try:
            running = broker.mosquitto(
                extra=f"listener {port} {broker.LOOPBACK}\nprotocol websockets{lines}"
            )
        except broker.BrokerError:
            if not left:
                raise
            continue
        deadline = time.monotonic() + broker.START_TIMEOUT
        while True:
            try:
                socket.create_connection((running.host, port), timeout=2).close()
                return running, port
            except OSError:
                assert time.monotonic() < deadline, running.log()
    raise AssertionError
