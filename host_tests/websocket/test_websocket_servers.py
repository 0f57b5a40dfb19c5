"""A strict server library at the other end: it refuses unmasked frames and bad handshakes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

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
    """A broker over WebSocket. `then` is called instead of it once a message has come."""

    def __init__(
        self,
        send: Send = lambda socket, data: socket.send(data),
        then: Callable[[ServerConnection], None] | None = None,
    ) -> None:
        super().__init__()
        self._send = send
        self._then = then
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

    def packet(self, connection: core.Connection, first: int, body: bytes) -> None:
        if first >> 4 == 3 and self._then:
            assert isinstance(connection, Connection)
            self._then(connection.socket)
        else:
            super().packet(connection, first, body)


@contextlib.contextmanager
def serving(handler: Callable[[ServerConnection], None], **options) -> Iterator[Server]:
    options.setdefault("subprotocols", ["mqtt"])
    with serve(handler, "127.0.0.1", 0, ping_interval=None, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _port(server: Server) -> int:
    return int(server.socket.getsockname()[1])


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
    with serving(broker) as server:
        name = "websocket_scenarios.messages_come_back"
        linked(python, name, {}, port=_port(server), mask="random")
        assert broker.done.wait(DEADLINE)
    assert (broker.complaints, broker.codes) == ([], [(1000, 1000)])


def _refuse(socket: ServerConnection, request: object) -> object:
    return socket.respond(HTTPStatus.FORBIDDEN, "no\n")


# What a server does, the first error of the client, and the codes of Close that the server got
# and sent, where the connection was open.
ERRORS: dict[str, tuple[dict[str, Any], str, tuple[int, int | None] | None]] = {
    "a close with a code": (
        {"then": lambda socket: socket.close(1008, "not on this topic")},
        "WebSocket closed by the peer: code 1008 not on this topic",
        (1008, 1008),
    ),
    "text": (
        {"then": lambda socket: socket.send("hello")},
        "the peer sent a text frame",
        (1003, 1003),
    ),
    "no sub-protocol": ({"subprotocols": None}, "sub-protocol mqtt not accepted", None),
    "a refusal": (
        {"process_request": _refuse},
        "answered HTTP/1.1 403 Forbidden: check the path '/mqtt'",
        None,
    ),
}


@spread("error", ERRORS, python=PYTHONS)
def test_what_a_server_does_is_reported(error: str, python: str) -> None:
    options, text, codes = ERRORS[error]
    options = dict(options)
    broker = Broker(then=options.pop("then", None))
    with serving(broker, **options) as server:
        name = "websocket_scenarios.first_error"
        told = " ".join(linked(python, name, {}, port=_port(server), mask="random")[0])
        assert codes is None or broker.done.wait(DEADLINE)
        assert told.startswith("@ closed ")
        assert text in told
    assert codes is None or broker.codes[0] == codes
    assert not broker.complaints
