"""The scripted broker on loopback: a listener, and one thread that reads."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable

from brokers import core
from brokers.core import Core
from flatmq_tools.broker import LOOPBACK, Broker
from flatmq_tools.ports import HeldPort
from packets.properties import NONE, Pairs


class Connection(core.Connection):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError:
            self.end()

    def end(self) -> None:
        """Have the thread that reads close it."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class FakeBroker(Core, Broker):
    """A broker for tests, as `Core` describes it. Its sessions outlive `kill`.

    One thread reads, the oldest connection first. With one for each, the CONNECT of a connection
    that is gone already could be taken after that of the next one, and end it as its successor.
    """

    kind = "fake"

    def __init__(self, announces: Pairs = NONE) -> None:
        self._held = HeldPort()  # also while it is dead
        Broker.__init__(self, LOOPBACK, self._held.number)
        Core.__init__(self, announces)
        self.changed = threading.Condition(self.lock)
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self.restart()

    @property
    def serving(self) -> bool:  # type: ignore[override]
        """Return whether the broker listens: it has not been killed."""
        return self._listener is not None

    def restart(self) -> None:
        self.kill()
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=64)
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, args=(self._listener,), daemon=True)
        self._thread.start()

    def kill(self) -> None:
        with self.lock:
            listener, self._listener = self._listener, None
            self._kept_back.clear()
            self.end()
        if listener and self._thread:
            # Closing would not wake the thread, which closes it, and may have by now.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()

    def stop(self) -> None:
        self.kill()
        self._held.release()

    def until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Wait for a condition of what its clients do. Whether it came true in time."""
        with self.lock:
            return bool(self.changed.wait_for(condition, seconds))

    # The thread

    def _run(self, listener: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while selector.get_map():
                with self.lock:
                    seconds = self.turn()
                ready = {key.fileobj for key, _events in selector.select(seconds)}
                with self.lock:
                    for connection in [c for c in self.connections if c.sock in ready]:
                        if not self._serve(connection):
                            selector.unregister(connection.sock)
                            connection.sock.close()
                            self.closed(connection)
                    if listener in ready and not self._accepted(listener, selector):
                        selector.unregister(listener)
                        listener.close()
                    self.changed.notify_all()

    def _accepted(self, listener: socket.socket, selector: selectors.BaseSelector) -> bool:
        """Accept a connection, and return whether the broker still listens."""
        if self._listener is not listener:
            return False
        with contextlib.suppress(OSError):  # the peer has gone again
            sock, _address = listener.accept()
            sock.setblocking(True)
            self.connections.append(Connection(sock))
            selector.register(sock, selectors.EVENT_READ)
        return True

    def _serve(self, connection: Connection) -> bool:
        """Handle what is there to read. Whether the connection goes on."""
        data = b""
        with contextlib.suppress(OSError):
            data = connection.sock.recv(65536)
        if not data or connection.ended:
            return False
        self.taken(connection, data)
        return True
