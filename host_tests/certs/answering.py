"""Something at a port of loopback that is no broker."""

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator

from flatmq_tools.broker import LOOPBACK

PATIENCE = 120.0  # seconds that a connection may take


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """The address of something that treats each connection so, until the end of the block."""
    ends: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                end, _ = server.accept()
                ends.append(end)
                end.settimeout(PATIENCE)
                start(functools.partial(serve, end))

    def serve(end: socket.socket) -> None:
        # Whatever goes wrong is a connection that ends.
        with end, contextlib.suppress(OSError, EOFError, ValueError):
            answer(end)

    with socket.create_server((LOOPBACK, 0)) as server:
        start(accept)
        yield f"{LOOPBACK}:{server.getsockname()[1]}"
        for end in (server, *ends):  # whose client may never close it
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(PATIENCE)
