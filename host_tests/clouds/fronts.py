"""Front ends that make a mosquitto on loopback as particular as a cloud service."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import select
import socket
import ssl
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

from scapy.contrib.mqtt import MQTT, MQTTConnect
from scapy.layers.tls.all import TLS, TLS_Ext_ServerName, TLSClientHello

from flatmq_tools.broker import LOOPBACK
from packets import strict

PATIENCE = 30.0  # seconds that a peer may take for its first bytes
_CHUNK = 65536  # bytes read at once
_NOT_AUTHORIZED = bytes((0x20, 2, 0, 5))  # CONNACK


def _exactly(end: socket.socket, size: int) -> bytes:
    """Read that many bytes. Raises EOFError if the peer closes before."""
    data = b""
    while len(data) < size:
        more = end.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _relay(a: socket.socket, b: socket.socket) -> None:
    """Pass bytes both ways until one end closes."""
    for end in (a, b):
        end.settimeout(None)
    while True:
        waiting = [end for end in (a, b) if isinstance(end, ssl.SSLSocket) and end.pending()]
        for end in waiting or select.select([a, b], [], [])[0]:
            data = end.recv(_CHUNK)
            if not data:
                return
            (b if end is a else a).sendall(data)


class _Front:
    """A server on loopback at `port` that passes accepted connections on to `target`.

    `target` is a port of loopback.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server((LOOPBACK, 0))
        self.port = int(self._server.getsockname()[1])
        self._ends: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._server.accept()
            except OSError:
                return
            end.settimeout(PATIENCE)
            self._ends.add(end)
            thread = threading.Thread(target=self._serve, args=(end,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, end: socket.socket) -> None:
        # Whatever goes wrong is a connection that ends.
        with end, contextlib.suppress(OSError, EOFError, ValueError):
            self._pass(end)
        self._ends.discard(end)

    def _pass(self, end: socket.socket) -> None:
        """Serve one connection."""
        raise NotImplementedError

    def _on(self, end: socket.socket, first: bytes) -> None:
        """Pass a connection on, whose first bytes were read."""
        with socket.create_connection((LOOPBACK, self._target)) as broker:
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            broker.sendall(first)
            _relay(end, broker)

    def close(self) -> None:
        """End it and all connections."""
        for end in (self._server, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(PATIENCE)


class NameCheck(_Front):
    """Passes on only what asks for `name` in its ClientHello (SNI).

    `seen` has every name, and "" for a hello without one.
    """

    def __init__(self, target: int, name: str) -> None:
        self.name = name
        self.seen: list[str] = []
        super().__init__(target)

    def _pass(self, end: socket.socket) -> None:
        head = _exactly(end, 5)
        record = head + _exactly(end, int.from_bytes(head[3:], "big"))
        asked = ""
        hello = TLS(record).getlayer(TLSClientHello)
        for extension in (hello.ext or []) if hello else []:
            if isinstance(extension, TLS_Ext_ServerName):
                asked = extension.servernames[0].servername.decode()
        self.seen.append(asked)
        if asked == self.name:
            self._on(end, record)


class Hub(_Front):
    """A front end like Azure IoT Hub.

    It needs TLS 1.2, a user name of a fixed form, and a SAS token as password, without which
    CONNACK has 5. A connection ends when its token expires. `refused` says why, for each
    CONNECT that was; `tokens` has the accepted ones.
    """

    def __init__(self, target: int, host: str, device: str, key: bytes, holder: Path) -> None:
        self._host = host
        self._device = device
        self._key = key
        self._ahead = 0  # seconds that its clock is ahead
        self._expiries: dict[socket.socket, int] = {}
        self.refused: list[str] = []
        self.tokens: list[str] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._context.load_cert_chain(f"{holder}.pem", f"{holder}.key.pem")
        super().__init__(target)

    def advance(self, seconds: int) -> None:
        """Put its clock forward, and end what has expired by then."""
        self._ahead += seconds
        for end, expiry in list(self._expiries.items()):
            if expiry <= self._now():
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _now(self) -> float:
        return time.time() + self._ahead

    def _pass(self, end: socket.socket) -> None:
        with self._context.wrap_socket(end, server_side=True) as secured:
            self._ends.add(secured)  # wrapping has taken the socket out of `end`
            try:
                self._greet(secured)
            finally:
                self._ends.discard(secured)
                self._expiries.pop(secured, None)

    def _greet(self, end: ssl.SSLSocket) -> None:
        packet = _exactly(end, 2)
        while packet[-1] & 128:
            packet += _exactly(end, 1)
        head = strict.header(packet)
        assert head is not None
        packet += _exactly(end, head.length)
        connect = MQTT(packet).getlayer(MQTTConnect)
        token = connect.password.decode()
        why = self._fault(connect.clientId.decode(), connect.username.decode(), token)
        if why:
            self.refused.append(why)
            end.sendall(_NOT_AUTHORIZED)
            return
        self.tokens.append(token)
        self._expiries[end] = int(parse_qs(token.partition(" ")[2])["se"][0])
        self._on(end, packet)

    def _fault(self, client_id: str, user: str, token: str) -> str:
        """Return why a CONNECT is refused; empty if it is not."""
        if client_id != self._device:
            return "client identifier"
        if user != f"{self._host}/{self._device}/?api-version=2021-04-12":
            return "user name"
        kind, _, rest = token.partition(" ")
        fields = dict(each.split("=", 1) for each in rest.split("&"))
        if kind != "SharedAccessSignature" or set(fields) != {"sr", "sig", "se"}:
            return "form of the token"
        if unquote(fields["sr"]) != f"{self._host}/devices/{self._device}":
            return "resource"
        signed = f"{quote(unquote(fields['sr']), safe='')}\n{fields['se']}".encode()
        digest = hmac.new(self._key, signed, hashlib.sha256).digest()
        if base64.b64decode(unquote(fields["sig"])) != digest:
            return "signature"
        return "expiry" if int(fields["se"]) <= self._now() else ""
