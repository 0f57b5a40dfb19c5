"""The peer's side of the links: bytes as they are, in TLS, in WebSocket, or in both.

Each packet that is sent is a frame or a record of its own, as from mosquitto.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Protocol

from websockets.frames import Frame
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from flatmq_rigs.certificates import CHAIN, KEY

_MOST = 65536  # bytes of one read


class Channel(Protocol):
    """Both directions of a connection; one thread may receive while another one sends."""

    def receive(self) -> bytes:
        """Return what the client sent, waiting for some; nothing at the end."""

    def send(self, packets: Sequence[bytes]) -> None:
        """Send packets to the client."""


class Plain:
    """A socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def receive(self) -> bytes:
        """Return what the client sent, waiting for some; nothing at the end."""
        return self._socket.recv(_MOST)

    def send(self, packets: Sequence[bytes]) -> None:
        """Send packets to the client."""
        self._socket.sendall(b"".join(packets))


class Secure:
    """TLS on a socket. Each packet is a record.

    OpenSSL must not be called by two threads at once, and a read of an SSLSocket may last.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lock = threading.Lock()

    def receive(self) -> bytes:
        """Return what the client sent, waiting for some; nothing at the end."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(_MOST)
                except ssl.SSLWantReadError:
                    self._flush()  # of the handshake
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            data = self._socket.recv(_MOST)
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()

    def send(self, packets: Sequence[bytes]) -> None:
        """Send packets to the client."""
        with self._lock:
            for packet in packets:
                self._tls.write(packet)
            self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._outgoing.read())


class Web:
    """A WebSocket over another channel. Each packet is a frame."""

    def __init__(self, below: Channel) -> None:
        self._below = below
        self._protocol = ServerProtocol(subprotocols=[Subprotocol("mqtt")])

    def take(self, data: bytes) -> bytes:
        """Return the payload in bytes that came from below, and answer what is not payload."""
        self._protocol.receive_data(data)
        payload = b""
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
            elif isinstance(event, Frame):
                payload += event.data
        self._flush()
        return payload

    def receive(self) -> bytes:
        """Return what the client sent, waiting for some; nothing at the end."""
        while data := self._below.receive():
            if payload := self.take(data):
                return payload
        return b""

    def send(self, packets: Sequence[bytes]) -> None:
        """Send packets to the client."""
        for packet in packets:
            self._protocol.send_binary(packet)
        self._flush()

    def _flush(self) -> None:
        if frames := [data for data in self._protocol.data_to_send() if data]:
            self._below.send(frames)


def server_context(folder: str) -> ssl.SSLContext:
    """Return a TLS context for a peer, with the files of `certificates.write_loopback`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/{CHAIN}", f"{folder}/{KEY}")
    return context
