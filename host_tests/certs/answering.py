"""Something at a port of loopback that is no broker."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from flatmq_tools.broker import LOOPBACK

PATIENCE = 120.0  # seconds that a connection may take


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of something that treats each connection so, until the end of the block."""
    ends: list[socket.socket] = []
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    end, _ = server.accept()
                    ends.append(end)
                    end.settimeout(PATIENCE)
                    with end, contextlib.suppress(OSError):
                        answer(end)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
        for end in ends:  # whose client may never close it
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
