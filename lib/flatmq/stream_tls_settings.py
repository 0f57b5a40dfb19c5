"""Check the settings for TLS, and read what they name. Loaded until the first connection."""

import sys

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .stream_tls import TLS
    from .stream_tls_board import Link

_DATA = (str, bytes, bytearray, memoryview)
_LEAST = const(4096)  # bytes of a reserve
# Ports on which Mbed TLS has a heap of its own.
_OWN_HEAP = const(("esp32", "linux", "darwin", "win32", "webassembly"))


def check(tls: "TLS", pin: "Any", insecure: bool) -> "tuple[bytes, ...]":
    """Check the arguments of `TLS`, and return the digests of `pin`."""
    if not (tls.ca or pin or insecure):
        raise ValueError(
            "TLS needs ca, the certificate of the authority that signed the broker's, or pin, "
            "the SHA-256 of the broker's public key (insecure=True verifies nothing)"
        )
    if insecure and (tls.ca or pin):
        raise ValueError("insecure must be False with ca or pin, not True")
    if bool(tls.cert) != bool(tls.key):
        raise ValueError("cert and key must be given together, not one of them")
    for name, value in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        if value and not isinstance(value, _DATA):
            kind = type(value).__name__  # a key is not shown
            raise TypeError(f"{name} must be bytes or the path of a file, not {kind}")
    host = tls.server_hostname
    if not isinstance(host or "", str):
        raise TypeError(f"server_hostname must be str, not {host!r}")
    n = tls.reserve
    if n not in (None, False, True) and (not isinstance(n, int) or n < _LEAST):
        raise ValueError(f"reserve must be a bool or at least 4096 bytes, not {n!r}")
    if not pin:
        return ()
    from .stream_tls_pin import digests

    return digests(pin)


def contents(what: "Any") -> bytes:
    """Return a certificate or a key as bytes. OSError if the file cannot be read."""
    if not isinstance(what, str):
        return bytes(what) if what.__class__ is not bytes else what
    with open(what, "rb") as file:
        return file.read()


def kept(s: "Any", name: str) -> "tuple[Any, Any, Any]":
    """Return what a link to the host `name` keeps of settings `s`.

    That is a function of a certificate, what its result must be one of, and the Reserve.
    """
    found: Any = None, s.pins
    if s.pins:
        from .stream_tls_pin import digest_of

        found = digest_of, s.pins
    elif s.ca and (":" in name or name.replace(".", "").isdigit()):
        from .stream_tls_address import expected

        found = expected(name)
    n = s.reserve
    if n is None:
        n = sys.platform not in _OWN_HEAP
    if n:
        from .stream_tls_reserve import Reserve

        n = Reserve(_LEAST if n is True else n)
    return found[0], found[1], n or None


def context(s: "Any", link: "Link", verify: "Any") -> "Any":
    """Return an SSLContext with settings `s`. The link's `stage` says what is being read."""
    tls: Any = __import__("tls")

    made = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    # CERT_OPTIONAL: without an authority the certificate is still passed to `verify`.
    made.verify_mode = tls.CERT_REQUIRED if s.ca else tls.CERT_OPTIONAL
    made.verify_callback = verify
    if s.ca:
        link.stage = "ca"
        made.load_verify_locations(contents(s.ca))
    if s.cert:
        link.stage = "cert"
        made.load_cert_chain(contents(s.cert), contents(s.key))
    link.stage = ""
    return made
