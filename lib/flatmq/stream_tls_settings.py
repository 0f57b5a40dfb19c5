"""Check the settings for TLS, and read what they name. Loaded for these calls."""

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .stream_tls import TLS
    from .stream_tls_board import Link

_DATA = (str, bytes, bytearray, memoryview)
_LEAST = const(4096)  # bytes of a reserve


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


if MICROPYTHON:
    import tls

    def context(s: "Any", link: "Link", verify: "Any") -> "Any":
        """Return an SSLContext with settings `s`. The link's `stage` says what is being read."""
        made: Any = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
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
