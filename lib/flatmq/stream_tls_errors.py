"""Explain TLS errors: what is wrong, and what to do. Loaded with the first one."""

import errno
import time

from . import MQTTError
from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_TEXTS = {
    "authority": "the certificate is from an unknown authority: give the one that signed it in "
    "ca; or one on the way is missing, in wrong order or not allowed: `flatmq tls` says which",
    "usage": "the certificate is not for servers, or has a key that boards do not support: give "
    "the broker another one",
    "name": "the certificate is not for {name}: use a name in it, or give server_hostname",
    "expired": "the certificate has expired by this clock ({date}): set the clock or renew it at "
    "the broker, or give pin instead of ca",
    "future": "the certificate is not valid yet by this clock ({date}): set the clock first, or "
    "give pin instead of ca",
    "required": "no authority is given: give the one that signed the broker's certificate in ca, "
    "or give pin",
    "wanted": "the broker closed the connection after its certificate: it needs a client "
    "certificate, give cert and key",
    "refused": "the broker refused the client certificate: cert must be valid today, key must be "
    "the key of cert, and the broker must trust the authority that signed cert",
    "old": "the broker refused the client certificate: cert must be valid today, and has expired",
    "plain": "closed before the broker's certificate came: use the port that has TLS (often "
    "8883), or allow TLS 1.2 at the broker",
    "silent": "no answer to TLS in time: use the port that has TLS (often 8883)",
    "version": "no TLS version or cipher in common: allow TLS 1.2 at the broker",
    "memory": "no memory for TLS: connect before the application fills the heap, or free some; on "
    "an ESP32, of what esp32.idf_heap_info(esp32.HEAP_DATA) shows",
    "pin": "the broker's public key is not in pin: its SHA-256 is {name}",
    "unread": "the broker's certificate could not be read to compare its key or its addresses",
    "file": "the file in {name} cannot be read: {error}",
    "ca": "ca must be an X.509 certificate in DER, or in PEM where the firmware reads it",
    "cert": "cert and key must be an X.509 certificate and its key in DER, or in PEM where the "
    "firmware reads it",
    "handshake": "the handshake failed: {error}; `flatmq tls` may say why",
}

# Errors of Mbed TLS, without their sign.
_CERT_VERIFY_FAILED = const(0x2700)
_CONN_EOF = const(0x7280)
_CA_CHAIN_REQUIRED = const(0x7680)
_FATAL_ALERT_MESSAGE = const(0x7780)
_PEER_CLOSE_NOTIFY = const(0x7880)
_BAD_PROTOCOL_VERSION = const(0x6E80)
_INVALID_RECORD = const(0x7200)
_BAD_CERTIFICATE = const(0x7A00)
# ALLOC_FAILED of PEM, X.509, DHM, PK, ECP, MD, cipher and SSL.
_NO_MEMORY = const((0x1180, 0x2880, 0x3400, 0x3F80, 0x4D80, 0x5180, 0x6180, 0x7F00))
# Those of bignum and ASN.1: errors of their own, which look like an errno that no handshake has,
# or the low bits of another one.
_NO_MEMORY_LOW = const((0x10, 0x6A))
_LEAST = const(0x100)  # lower numbers are those of errno
_CLOSED = (errno.ECONNRESET, errno.ECONNABORTED, 32, _CONN_EOF, _PEER_CLOSE_NOTIFY)  # 32: EPIPE

# Texts of Mbed TLS about a certificate, which has one line for each reason.
_REASONS = const(
    (
        ("future", "future"),
        ("expired", "expired"),
        ("expected CN", "name"),
        ("not correctly signed", "authority"),
        ("Usage does not match", "usage"),
    )
)


def failure(
    cases: "Any", where: str, name: str = "", error: "Any" = None, closed: bool = False
) -> MQTTError:
    """Return the MQTTError for `cases`, names of texts above, at the broker `where`.

    `name` is the expected name, or the subject of the text. `closed`: it is only known that
    the connection was closed.
    """
    date = "{}-{:02d}-{:02d}".format(*time.gmtime()[:3])
    what = f"{type(error).__name__}: {error}"
    texts = [_TEXTS[case].format(name=name, date=date, error=what) for case in cases]
    kind = "resource" if "memory" in cases else "timeout" if "silent" in cases else "tls"
    return MQTTError(kind, f"TLS {where}: {'; '.join(texts)}", int(closed))


def of_board(
    error: "Any",
    stage: str,
    certified: bool,
    has_cert: bool,
    digest: "bytes | None",
    pins: tuple,
    name: str,
    where: str,
) -> "MQTTError | None":
    """Return the fault for which Mbed TLS raised `error` at a `stage` of stream_tls_board.

    Returns None if the network was the cause.

    certified  the broker has sent a certificate
    has_cert   the client has one
    digest     the SHA-256 of the broker's public key if it was computed; no bytes if the broker
               has another address
    """
    if not isinstance(error, Exception):
        # The end of the stream is an exception during a handshake; another number is a timeout.
        return failure(("silent",), where) if error and not certified else None
    # On MicroPython every exception has an errno: its first argument.
    code = abs(error.errno or 0) if isinstance(error, OSError) else 0
    if (
        isinstance(error, MemoryError)
        or code == errno.ENOMEM
        or code in _NO_MEMORY
        or ((code >= _LEAST or stage == "handshake") and code & 127 in _NO_MEMORY_LOW)
    ):
        return failure(("memory",), where)
    if stage != "handshake":
        if code:
            return failure(("file",), where, stage, error)
        return failure((stage,), where)
    if isinstance(error, ValueError):
        cases = [case for text, case in _REASONS if text in str(error)]
        return failure(cases or ("handshake",), where, name, error)
    if certified and pins and digest not in pins:
        if digest is None:
            return failure(("unread",), where)
        if not digest:
            return failure(("name",), where, name)
        from .stream_tls_pin import text

        return failure(("pin",), where, text(digest))
    case = _case(code, certified, has_cert)
    return failure((case,), where, name, error, code in _CLOSED) if case else None


def _case(code, certified, has_cert):
    """Return the name of the text for an error number, None for an error of the network."""
    if code == _CA_CHAIN_REQUIRED:
        return "required"
    if code == _CERT_VERIFY_FAILED:
        return "authority"
    if code == _BAD_CERTIFICATE:
        return "usage"
    if code == _BAD_PROTOCOL_VERSION:
        return "version"
    if code == _INVALID_RECORD and not certified:
        return "plain"
    if code == _FATAL_ALERT_MESSAGE or code in _CLOSED:
        if certified:
            return "refused" if has_cert else "wanted"
        return "version" if code == _FATAL_ALERT_MESSAGE else "plain"
    return "handshake" if code >= _LEAST else None
