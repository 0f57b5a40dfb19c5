"""TLS settings: whom to trust, and how the client identifies itself.

    tls = TLS(ca="ca.der")
    client = Client(b"pico-1", "broker.example", tls=tls)

The client does not import this module. The links are in `stream_tls_board` and, on CPython, in
`stream_tls_cpython`.
"""

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_DATA = (str, bytes, bytearray, memoryview)
SPARE = const(4096)  # bytes; see stream_tls_reserve


class TLS:
    """TLS 1.2 to a broker that is verified by `ca`, by `pin`, or by both.

    ca         certificate of the authority that signed the broker's certificate, whose name and
               dates are checked, too
    cert, key  the client's own certificate and its key, for a broker that requires them
    pin        SHA-256 of the broker's public key (SubjectPublicKeyInfo, as in RFC 7469): 32 bytes,
               or base64 as str. With a tuple, any of them is accepted. A pin without `ca` needs
               no clock, no authority and no name
    server_hostname   name to send (SNI), which the certificate must contain; default: `host`
    insecure   True: verify nothing. Anyone on the path can read and change everything
    reserve    heap held for the next handshake, in eight pieces: bytes, at least 4,096; True for
               4,096; False for none. What TLS keeps, 23 KB, is held besides while
               there is no connection. None: True if TLS takes its memory from the MicroPython heap
               (not on ESP32 and unix)

    `ca`, `cert` and `key` are bytes, or the path of a file as str, which is read when connecting.
    They are in DER, or in PEM if the firmware supports that. ValueError and TypeError name the
    argument that broke its rule.
    """

    def __init__(
        self,
        ca: "bytes | str | None" = None,
        cert: "bytes | str | None" = None,
        key: "bytes | str | None" = None,
        pin: "bytes | str | tuple[bytes | str, ...] | None" = None,
        server_hostname: "str | None" = None,
        insecure: bool = False,
        reserve: "bool | int | None" = None,
    ) -> None:
        if not (ca or pin or insecure):
            raise ValueError(
                "TLS needs ca, the certificate of the authority that signed the broker's, or pin, "
                "the SHA-256 of the broker's public key (insecure=True verifies nothing)"
            )
        if insecure and (ca or pin):
            raise ValueError("insecure must be False with ca or pin, not True")
        if bool(cert) != bool(key):
            raise ValueError("cert and key must be given together, not one of them")
        for name, value in (("ca", ca), ("cert", cert), ("key", key)):
            if value and not isinstance(value, _DATA):
                kind = type(value).__name__  # a key is not shown
                raise TypeError(f"{name} must be bytes or the path of a file, not {kind}")
        if not isinstance(server_hostname or "", str):
            raise TypeError(f"server_hostname must be str, not {server_hostname!r}")
        if reserve not in (None, False, True) and (
            not isinstance(reserve, int) or reserve < SPARE
        ):
            raise ValueError(f"reserve must be a bool or at least 4096 bytes, not {reserve!r}")
        self.ca = ca
        self.cert = cert
        self.key = key
        self.pins: tuple[bytes, ...] = ()
        self.server_hostname = server_hostname
        self.reserve = reserve
        if pin:
            from .stream_tls_pin import digests

            self.pins = digests(pin)

    def link(self, host: str, port: int) -> "Any":
        """Return a link to a broker, as described in `stream_tcp`.

        It makes an SSLContext with the first connection, keeps that, and then drops this
        object.
        """
        if MICROPYTHON:
            from .stream_tls_board import Link
        else:
            from .stream_tls_cpython import Link
        return Link(self, host, port)


def contents(what: "Any") -> bytes:
    """Return a certificate or a key as bytes. OSError if the file cannot be read."""
    if not isinstance(what, str):
        return bytes(what) if what.__class__ is not bytes else what
    with open(what, "rb") as file:
        return file.read()
