"""Front ends that make a mosquitto on loopback as particular as a cloud service."""

import base64
import contextlib
import hashlib
import hmac
import select
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote

from scapy.contrib.mqtt import MQTT, MQTTConnect
from scapy.layers.tls.all import TLS, TLS_Ext_ServerName, TLSClientHello

from flatmq_tools.broker import LOOPBACK
from packets import strict

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


def _pass_on(end: socket.socket, first: bytes, target: int) -> None:
    """Pass a connection on to a port of loopback; its first bytes were read."""
    with socket.create_connection((LOOPBACK, target)) as broker:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.sendall(first)
        _relay(end, broker)


class NameCheck:
    """Passes on to the port `target` only what asks for `name` in its ClientHello (SNI).

    `seen` has every name, and "" for a hello without one.
    """

    def __init__(self, target: int, name: str) -> None:
        self._target = target
        self._name = name
        self.seen: list[str] = []

    def serve(self, end: socket.socket) -> None:
        head = _exactly(end, 5)
        record = head + _exactly(end, int.from_bytes(head[3:], "big"))
        asked = ""
        hello = TLS(record).getlayer(TLSClientHello)
        for extension in (hello.ext or []) if hello else []:
            if isinstance(extension, TLS_Ext_ServerName):
                asked = extension.servernames[0].servername.decode()
        self.seen.append(asked)
        if asked == self._name:
            _pass_on(end, record, self._target)


class Hub:
    """A front end like Azure IoT Hub, before the broker at the port `target`.

    It needs TLS 1.2, a user name of a fixed form, and a SAS token as password, without which
    CONNACK has 5. A connection ends when its token expires. `refused` says why, for each
    CONNECT that was; `tokens` has the accepted ones.
    """

    def __init__(self, target: int, host: str, device: str, key: bytes, holder: Path) -> None:
        self._target = target
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

    def advance(self, seconds: int) -> None:
        """Put its clock forward, and end what has expired by then."""
        self._ahead += seconds
        for end, expiry in list(self._expiries.items()):
            if expiry <= self._now():
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _now(self) -> float:
        return time.time() + self._ahead

    def close(self) -> None:
        self.advance(1 << 32)

    def serve(self, end: socket.socket) -> None:
        with self._context.wrap_socket(end, server_side=True) as secured:
            try:
                self._greet(secured)
            finally:
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
        _pass_on(end, packet, self._target)

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
