"""A strict server library at the other end: it refuses unmasked frames and bad handshakes."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from brokers import core
from conftest import PYTHONS
from scenario_child import linked
from sizes import spread

DEADLINE = 30.0  # seconds that anything may take
Send = Callable[[ServerConnection, bytes], None]


class Connection(core.Connection):
    """A client's connection, whose packets leave by `send`."""

    def __init__(self, socket: ServerConnection, send: Send) -> None:
        super().__init__()
        self.socket = socket
        self._send = send

    def send(self, data: bytes) -> None:
        self._send(self.socket, data)

    def end(self) -> None:
        self.ended = True
        self.socket.close(1000)


class Broker(core.Core):
    """A broker over WebSocket, whose packets leave by `send`."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send
        self.codes: list[tuple[int, int | None]] = []  # that were received and sent
        self.done = threading.Event()  # the first connection is over

    def __call__(self, socket: ServerConnection) -> None:
        connection = Connection(socket, self._send)
        self.connections.append(connection)
        with contextlib.suppress(ConnectionClosed):
            for data in socket:
                assert isinstance(data, bytes)
                self.taken(connection, data)
        self.closed(connection)
        received, sent = socket.protocol.close_rcvd, socket.protocol.close_sent
        self.codes.append((received.code if received else 0, sent.code if sent else None))
        self.done.set()


@contextlib.contextmanager
def serving(broker: Broker) -> Iterator[int]:
    """Serve it; yield the port."""
    with serve(broker, "127.0.0.1", 0, ping_interval=None, subprotocols=["mqtt"]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.socket.getsockname()[1])
        finally:
            server.shutdown()
            thread.join()


def in_fragments(socket: ServerConnection, data: bytes) -> None:
    """Each byte in a frame of its own, with a ping before every 50th."""

    def pieces() -> Iterator[bytes]:
        for i in range(len(data)):
            if i % 50 == 1:
                socket.ping()
            yield data[i : i + 1]

    socket.send(pieces())


def in_messages(socket: ServerConnection, data: bytes) -> None:
    """Cut at places that have nothing to do with packets."""
    for i in range(0, len(data), 3):
        socket.send(data[i : i + 3])


SENDS: dict[str, Send] = {
    "as it is": lambda socket, data: socket.send(data),
    "in fragments": in_fragments,
    "in messages": in_messages,
}


@spread("send", SENDS, python=PYTHONS)
def test_messages_come_back_and_the_ending_is_in_order(send: str, python: str) -> None:
    broker = Broker(SENDS[send])
    with serving(broker) as port:
        name = "websocket_scenarios.messages_come_back"
        linked(python, name, {}, port=port, mask="random")
        assert broker.done.wait(DEADLINE)
    assert (broker.complaints, broker.codes) == ([], [(1000, 1000)])
