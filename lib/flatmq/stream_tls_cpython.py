"""TLS on CPython, with a link and a stream like those of `stream_tls_board`."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from . import MQTTError, stream_cpython
from .stream_cpython import TCP
from .stream_tls_errors import failure
from .stream_tls_pin import digest_of, text
from .stream_tls_settings import contents

if TYPE_CHECKING:
    from .stream_tls import TLS

_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)
_CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)
# Texts by the verify_code of OpenSSL.
_CODES = {9: "future", 10: "expired", 62: "name", 64: "name"}
_CODES.update(dict.fromkeys((2, 18, 19, 20, 21), "authority"))
_VERSION = ("UNSUPPORTED_PROTOCOL", "VERSION_TOO")
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO")


class Stream(stream_cpython.Stream):
    """A non-blocking TLS socket with the methods of a MicroPython stream."""

    sock: ssl.SSLSocket

    def readinto(self, buf: bytearray) -> int | None:
        """Read available bytes into `buf`.

        Returns their number, None if there are none, 0 at the end of the stream.
        """
        # A read returns at most one TLS record, and many brokers send one packet per record.
        view = memoryview(buf)
        have = 0
        try:
            while have < len(view):
                n = self.sock.recv_into(view[have:])
                if not n:
                    break
                have += n
        except _WAITS:
            return have or None
        except OSError:
            if not have:
                raise
        return have

    def write(self, buf: memoryview, off: int, n: int) -> int | None:
        """Write up to `n` bytes of `buf` from `off` on.

        Returns their number, None if there is no room.
        """
        try:
            return super().write(buf, off, n)
        except _WAITS:
            return None
        except OSError:
            self.readinto(bytearray(1))  # raises the alert that the broker may have sent
            raise


class Link(TCP):
    """A TLS link to `host` and `port`.

    `stage` is the progress of a connection: "ca" and "cert" while these are loaded, "handshake",
    "greeting" from then on, or "" before. A `context` replaces the files named in the settings,
    and decides what is verified; a function is called for one with each connection.
    """

    def __init__(
        self,
        settings: TLS,
        host: str,
        port: int,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        super().__init__(host, port)
        self.stage = ""
        if context is None:
            context = partial(self._load, settings)
        # Called with each connection: files may have been renewed.
        self._made = context if callable(context) else lambda: context
        self._context: ssl.SSLContext | None = None
        self._name = settings.server_hostname or host
        self._has_cert = bool(settings.cert)
        self._pins = settings.pins
        self._tls: ssl.SSLSocket | None = None
        self._reads = False  # the handshake waits for bytes from the broker
        self._answered = False  # the broker has answered

    def _load(self, settings: TLS) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if settings.ca:
            self.stage = "ca"
            ca = contents(settings.ca)
            context.load_verify_locations(cadata=ca.decode() if _is_pem(ca) else ca)
            # As on a board, any given certificate is trusted, even if it is not a root.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        else:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.cert:
            self.stage = "cert"
            _load_chain(context, contents(settings.cert), contents(settings.key))
        self.stage = ""
        return context

    def connect(self) -> None:
        """Begin to connect. OSError for a certificate or a key that cannot be read."""
        self.stage = ""
        self._answered = False
        self._context = self._made()
        super().connect()

    def stream(self) -> Stream | None:
        """Return the stream once the handshake is done, None before."""
        if self._tls is None:
            if super().stream() is None:
                return None
            assert self.sock is not None
            assert self._context is not None
            self.stage = "handshake"
            self.sock = self._tls = self._context.wrap_socket(
                self.sock, server_hostname=self._name, do_handshake_on_connect=False
            )
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._answered = self._tls.cipher() is not None
            self._reads = True
            return None
        except ssl.SSLWantWriteError:
            self._reads = False
            return None
        except OSError:
            self._answered = self._tls.cipher() is not None
            raise
        self._reads = False
        if self._pins:
            digest = digest_of(self._tls.getpeercert(True) or b"")
            if digest not in self._pins:
                raise failure(("pin",), self._where(), text(digest))
        self.stage = "greeting"
        return Stream(self._tls)

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too. Without a connection, wait for that
        time.
        """
        if self._tls is not None and self._tls.pending():
            return  # OpenSSL holds bytes that it has read from the network
        super().wait(ms, out and not self._reads)

    def close(self) -> None:
        """Close the socket."""
        self._tls = None
        self._reads = False
        super().close()

    def _where(self) -> str:
        return f"{self.host}:{self.port}"

    def why(self, error: Any) -> MQTTError | None:
        """Return the fault of TLS that caused `error`, None if TLS was not the cause."""
        if not self.stage:
            return None
        if not isinstance(error, Exception):  # the end of the stream, or a timeout
            silent = error and self.stage == "handshake" and not self._answered
            return failure(("silent",), self._where()) if silent else None
        return of_openssl(
            error, self.stage, self._answered, self._has_cert, self._name, self._where()
        )


def of_openssl(
    error: Exception, stage: str, answered: bool, has_cert: bool, name: str, where: str
) -> MQTTError | None:
    """Return the fault for which Python's ssl raised `error` at a `stage` of `Link`.

    Returns None if the network was the cause.

    answered   the broker had answered when the handshake failed
    has_cert   the client has a certificate
    name       the name that the broker's certificate must contain; `where` is the broker
    """
    case = _case(error, stage, answered, has_cert)
    if case is None:
        return None
    about = stage if case == "file" else name
    return failure((case,), where, about, error, isinstance(error, _CLOSED))


def _case(error: Exception, stage: str, answered: bool, has_cert: bool) -> str | None:
    """Return the name of the text for an exception, None for an error of the network."""
    reason = str(getattr(error, "reason", None) or "")
    if isinstance(error, MemoryError):
        return "memory"
    if stage in ("ca", "cert"):
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
            return "file"
        return "refused" if "KEY_VALUES_MISMATCH" in reason else stage
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CODES.get(error.verify_code, "handshake")
    # In TLS 1.3 the broker checks the client's certificate after the client's handshake is done.
    is_over = stage == "greeting"
    is_closed = isinstance(error, _CLOSED)
    if "ALERT_CERTIFICATE_EXPIRED" in reason:
        return "old"
    if "ALERT" in reason or (is_closed and not is_over):
        if is_over or answered:
            return "refused" if has_cert else "wanted"
        return "plain" if is_closed else "version"
    if is_over:
        return None
    if any(part in reason for part in _PLAIN):
        return "plain"
    if any(part in reason for part in _VERSION):
        return "version"
    return "handshake" if isinstance(error, (ssl.SSLError, ValueError)) else None


def _is_pem(data: bytes) -> bool:
    return b"-----BEGIN" in data


def _load_chain(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a certificate and its key, which Python can read only from files."""
    with tempfile.TemporaryDirectory(prefix="flatmq-") as folder:
        files = []
        for name, data in (("cert", cert), ("key", key)):
            path = os.path.join(folder, name)
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(data if _is_pem(data) else _pem(data, _kind(data, name)))
            files.append(path)
        context.load_cert_chain(*files)


def _kind(der: bytes, name: str) -> str:
    """Return the PEM label for the contents of `der`."""
    if name == "cert":
        return "CERTIFICATE"
    # PKCS #8 and PKCS #1 begin with version 0, SEC 1 with version 1; then comes a SEQUENCE, an
    # INTEGER, or an OCTET STRING, respectively.
    at = 2 + (der[1] & 127 if der[1] > 127 else 0)
    after = der[at + 3]
    return {0x30: "PRIVATE KEY", 0x02: "RSA PRIVATE KEY"}.get(after, "EC PRIVATE KEY")


def _pem(der: bytes, kind: str) -> bytes:
    text = ssl.DER_cert_to_PEM_cert(der)
    return text.replace("CERTIFICATE", kind).encode()
