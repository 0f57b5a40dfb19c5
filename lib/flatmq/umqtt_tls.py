"""The link of `flatmq.umqtt` with TLS: by an SSLContext of the program, or as umqtt has it for
ssl=True."""

from .port import MICROPYTHON, const
from .stream_tls import TLS

if MICROPYTHON:
    from .stream_tls_board import Link
else:
    from .stream_tls_cpython import Link

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .client import MQTTError

_CERT_REQUIRED = const(2)  # of ssl, on each port


class TLSLink(Link):
    """A TLS link that keeps what was raised before the broker accepted, in `error`."""

    error: "Exception | None" = None

    def why(self, error: "Any") -> "MQTTError | None":
        """Return what was wrong with TLS when `error` was raised, None if something else was."""
        if isinstance(error, (OSError, ValueError, TypeError)):
            self.error = error
        return super().why(error)


def link(host: str, port: int, ssl: "Any", params: "dict[str, Any]") -> TLSLink:
    """Return a link to a broker. `ssl` is an SSLContext, or True for `params` as the arguments of
    ssl.wrap_socket, which verifies nothing unless they say so. TypeError or ValueError for bad
    ones."""
    if ssl is True:
        return TLSLink(_settings(**params), host, port)
    return TLSLink(TLS(insecure=True), host, port, ssl)  # the context decides


def _settings(
    key=None, cert=None, cert_reqs=0, cadata=None, server_hostname=None, do_handshake=True
):
    """Return the TLS for arguments of ssl.wrap_socket. The handshake is never awaited there."""
    ca = None
    if cert_reqs == _CERT_REQUIRED:
        ca = cadata.encode() if isinstance(cadata, str) else cadata  # PEM, and no path
    return TLS(ca, cert, key, None, server_hostname, cert_reqs != _CERT_REQUIRED)
