"""TLS settings: whom to trust, and how the client identifies itself.

    tls = TLS(ca="ca.der")
    client = Client(b"pico-1", "broker.example", tls=tls)

The client does not import this module. The links are in `stream_tls_board` and, on CPython, in
`stream_tls_cpython`.
"""

from .port import MICROPYTHON, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


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

    `ca`, `cert` and `key` are bytes, or the path of a file as str, which is read when connecting;
    on a board with the first connection only.
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
        self.ca = ca
        self.cert = cert
        self.key = key
        self.server_hostname = server_hostname
        self.reserve = reserve
        self.pins: tuple[bytes, ...] = load("stream_tls_settings", "").check(self, pin, insecure)

    def link(self, host: str, port: int) -> "Any":
        """Return a link to a broker, as described in `stream_tcp`.

        On a board it makes an SSLContext with the first connection, keeps that, and then drops
        this object.
        """
        if MICROPYTHON:
            from .stream_tls_board import Link
        else:
            from .stream_tls_cpython import Link
        return Link(self, host, port)
