"""The TLS link of `flatmq.umqtt`.

It uses an SSLContext of the program, or `ssl=True` as in umqtt.
"""

from .port import MICROPYTHON, const
from .stream_tls import TLS

if MICROPYTHON:
    from .stream_tls_board import Link
else:
    from .stream_tls_cpython import Link

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import MQTTError

_CERT_REQUIRED = const(2)  # ssl.CERT_REQUIRED, on every port


class TLSLink(Link):
    """A TLS link that keeps, in `error`, an exception raised before the broker accepted."""

    error: "Exception | None" = None

    def why(self, error: "Any") -> "MQTTError | None":
        """Return the fault of TLS that caused `error`, None if TLS was not the cause."""
        if isinstance(error, (OSError, ValueError, TypeError)):
            self.error = error
        return super().why(error)


def link(host: str, port: int, ssl: "Any", params: "dict[str, Any]") -> TLSLink:
    """Return a link to a broker.

    `ssl` is an SSLContext, or True to use `params` as arguments of ssl.wrap_socket, which
    verifies nothing unless they require it. TypeError or ValueError for bad arguments.
    """
    if ssl is True:
        return TLSLink(_settings(**params), host, port)
    return TLSLink(TLS(insecure=True), host, port, ssl)  # the context decides


def _settings(
    key=None, cert=None, cert_reqs=0, cadata=None, server_hostname=None, do_handshake=True
):
    """Return a TLS for the arguments of ssl.wrap_socket. `do_handshake` is ignored."""
    ca = None
    if cert_reqs == _CERT_REQUIRED:
        ca = cadata.encode() if isinstance(cadata, str) else cadata  # str: PEM, not a path
    return TLS(ca, cert, key, None, server_hostname, cert_reqs != _CERT_REQUIRED)
