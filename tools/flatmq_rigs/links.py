"""A mosquitto that listens for one more link beside TCP: TLS, WebSocket, or both.

The soak and the fault table run the client over each of them.
"""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

from flatmq_tools import broker, ports

LINKS = ("tcp", "tls", "websocket", "websocket+tls")
_TRIES = 5  # a port that was free may be taken before mosquitto binds it
_CONNECT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
_DISCONNECT = b"\xe0\x00"


class LinkError(RuntimeError):
    """The link cannot be made; the text says what to do."""


class Listening:
    """A mosquitto on loopback; as a context manager, it stops at the end of the block.

    `broker` speaks plain TCP, `port` is that of the link, and `ca` the file with the
    certificate to trust, in DER; "" without TLS.

    port, link_port: 0 takes a free one. extra, persistence, output: as in `broker.mosquitto`.
    Raises LinkError, and BrokerError if mosquitto is missing or ends.
    """

    def __init__(
        self,
        link: str,
        *,
        port: int = 0,
        link_port: int = 0,
        persistence: bool = False,
        extra: str = "",
        output: int | None = None,
    ) -> None:
        self.ca = ""
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-link-")
        lines = ""
        if link.startswith("websocket"):
            lines += "protocol websockets\n"
        if link.endswith("tls"):
            from . import certificates as made

            folder = made.write_loopback(Path(self._folder.name))
            self.ca = str(folder / made.AUTHORITY)
            lines += f"certfile {folder / made.CHAIN}\nkeyfile {folder / made.KEY}\n"
        tries = 1 if link_port or not lines else _TRIES
        try:
            for left in reversed(range(tries)):
                self.port = (link_port or ports.free_port()) if lines else 0
                listener = f"listener {self.port} {broker.LOOPBACK}\n{lines}" if lines else ""
                try:
                    self._start(port, persistence, f"{extra}\n{listener}", output)
                    break
                except broker.BrokerError:
                    if not left:
                        raise
        except BaseException:
            self._folder.cleanup()
            raise

    def _start(self, port: int, persistence: bool, extra: str, output: int | None) -> None:
        self.broker = broker.mosquitto(
            port=port, persistence=persistence, extra=extra, output=output
        )
        self.port = self.port or self.broker.port
        try:
            self.wait()
        except BaseException:
            self.broker.stop()
            raise

    def wait(self) -> None:
        """Return once the link's port accepts connections.

        Raises BrokerError if mosquitto ends first, as it does if that port is taken, and
        LinkError if it does not answer.
        """
        deadline = time.monotonic() + broker.START_TIMEOUT
        while not self._answers():
            status = self.broker.status
            if status is not None:
                raise broker.BrokerError(
                    f"mosquitto with a listener at {self.port} ended with status {status}:\n"
                    f"{self.broker.log()}"
                )
            if time.monotonic() > deadline:
                raise LinkError(
                    f"mosquitto at {self.broker.address} does not answer CONNECT within "
                    f"{broker.START_TIMEOUT:g} s"
                )
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Return whether mosquitto answers CONNECT over TCP.

        It accepts connections there before it opens the link's port, at which another
        program may listen, and answers once it has opened both.
        """
        try:
            with socket.create_connection((self.broker.host, self.broker.port), timeout=2) as peer:
                peer.sendall(_CONNECT + _DISCONNECT)
                return peer.recv(1) == b"\x20"
        except OSError:
            return False

    def stop(self) -> None:
        self.broker.stop()
        self._folder.cleanup()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
