"""The connections of a broker that a test scripts.

It has a listener on loopback, one thread that reads, and packets that are kept back.

How a broker answers a packet is defined by the subclasses.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from flatmq_tools.broker import LOOPBACK, Broker
from flatmq_tools.ports import HeldPort


class Connection:
    """A client's connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.client_id: bytes | None = None  # None before CONNECT
        self.rest = b""  # of a packet that is cut
        self.mute = False  # what comes in is swallowed
        self.ended = False

    def send(self, data: bytes) -> None:
        """Send, unless the client has gone."""
        try:
            self.sock.sendall(data)
        except OSError:
            self.end()

    def end(self) -> None:
        """Have the thread that reads close it."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


C = TypeVar("C", bound=Connection)


class LoopbackBroker(Broker, Generic[C]):
    """A broker whose connections are of the class that it is given.

    One thread reads, the oldest connection first. With one for each, the CONNECT of a connection
    that is gone already could be taken after that of the next one, and end it as its successor.

    A subclass defines `taken`, and may define `closed` and `turn`. The thread holds `lock` while
    it calls them; whatever else changes the broker holds it as well.
    """

    def __init__(self, connection: Callable[[socket.socket], C]) -> None:
        self._held = HeldPort()  # also while it is dead
        super().__init__(LOOPBACK, self._held.number)
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.connections: list[C] = []
        self._make = connection
        self._withheld: frozenset[int] = frozenset()
        self._kept_back: list[tuple[C, bytes]] = []
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None

    # What a subclass defines, and uses

    def taken(self, connection: C, data: bytes) -> bytes:
        """Handle the packets in `data`, and return the beginning of one that is cut."""
        raise NotImplementedError

    def closed(self, connection: C) -> None:
        """Called when a connection has ended and is no longer among `connections`."""

    def turn(self) -> float | None:
        """Does what is due. Returns the seconds until something is, None if nothing will be."""
        return None

    def answer(self, connection: C, data: bytes) -> None:
        """Send a packet, or keep it back if its type is withheld."""
        if data[0] >> 4 in self._withheld:
            self._kept_back.append((connection, data))
        else:
            self.put(connection, data)

    def put(self, connection: C, data: bytes) -> None:
        """Send bytes now."""
        connection.send(data)

    @property
    def serving(self) -> bool:
        """Return whether the broker listens: it has not been killed."""
        return self._listener is not None

    # Running

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
            for connection in self.connections:
                connection.end()
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

    # What a scenario may have it do

    def withhold(self, types: frozenset[int]) -> None:
        """Keep back packets of these types from now on."""
        with self.lock:
            self._withheld = types

    def keeps_back(self) -> bool:
        """Return whether there is a packet that was kept back."""
        with self.lock:
            return bool(self._kept_back)

    def release(self) -> None:
        """Send what was kept back, and keep back nothing any more."""
        with self.lock:
            self._withheld = frozenset()
            kept_back, self._kept_back = self._kept_back, []
            for connection, data in kept_back:
                self.put(connection, data)

    def send(self, data: bytes) -> None:
        """Send these bytes to every client that is connected."""
        with self.lock:
            for connection in self.connections:
                self.put(connection, data)

    def end(self) -> None:
        """End every connection, in order."""
        with self.lock:
            for connection in self.connections:
                connection.end()

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
                            self.connections.remove(connection)
                            connection.sock.close()
                            self.closed(connection)
                    if listener in ready and not self._accept(listener, selector):
                        selector.unregister(listener)
                        listener.close()
                    self.changed.notify_all()

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> bool:
        """Accept a connection, and return whether the broker still listens."""
        if self._listener is not listener:
            return False
        with contextlib.suppress(OSError):  # the peer has gone again
            sock, _address = listener.accept()
            sock.setblocking(True)
            self.connections.append(self._make(sock))
            selector.register(sock, selectors.EVENT_READ)
        return True

    def _serve(self, connection: C) -> bool:
        """Handle what is there to read. Whether the connection goes on."""
        data = b""
        with contextlib.suppress(OSError):
            data = connection.sock.recv(65536)
        if not data or connection.ended:
            return False
        connection.rest = self.taken(connection, connection.rest + data)
        return True
