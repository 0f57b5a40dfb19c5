"""A mosquitto that listens for one more link beside TCP: TLS, WebSocket, or both.

The soak and the fault table run the client over each of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from flatmq_tools import broker, ports

LINKS = ("tcp", "tls", "websocket", "websocket+tls")


class Listening:
    """A mosquitto on loopback; as a context manager, it stops at the end of the block.

    `broker` speaks plain TCP, `port` is that of the link, and `ca` the file with the
    certificate to trust, in DER; "" without TLS.

    extra, persistence, output: as in `broker.mosquitto`. Raises BrokerError if mosquitto is
    missing or ends.
    """

    def __init__(
        self,
        link: str,
        *,
        persistence: bool = False,
        extra: str = "",
        output: int | None = None,
    ) -> None:
        self.ca = ""
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-link-")
        self._held = ports.HeldPort()
        lines = f"listener {self._held.number} {broker.LOOPBACK}\n"
        if link.startswith("websocket"):
            lines += "protocol websockets\n"
        if link.endswith("tls"):
            from . import certificates as made

            folder = made.write_loopback(Path(self._folder.name))
            self.ca = str(folder / made.AUTHORITY)
            lines += f"certfile {folder / made.CHAIN}\nkeyfile {folder / made.KEY}\n"
        try:
            self.broker = broker.mosquitto(
                persistence=persistence,
                extra=extra if link == "tcp" else f"{extra}\n{lines}",
                output=output,
            )
        except BaseException:
            self._held.release()
            self._folder.cleanup()
            raise
        self.port = self.broker.port if link == "tcp" else self._held.number

    def stop(self) -> None:
        self.broker.stop()
        self._held.release()
        self._folder.cleanup()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
