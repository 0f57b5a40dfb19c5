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
    from collections.abc import Callable
    from typing import Any

    from . import MQTTError

_CERT_REQUIRED = const(2)  # ssl.CERT_REQUIRED, on every port


class TLSLink(Link):
    """A TLS link that passes what was raised before the broker accepted to `note`."""

    note: "Callable[[Any], None]"

    def why(self, error: "Any") -> "MQTTError | None":
        """Return the fault of TLS that caused `error`, None if TLS was not the cause."""
        self.note(error)
        return super().why(error)


def link(
    host: str, port: int, ssl: "Any", params: "dict[str, Any]", note: "Callable[[Any], None]"
) -> TLSLink:
    """Return a link to a broker, which calls `note` with what was raised before it accepted.

    `ssl` is an SSLContext, or True to use `params` as arguments of ssl.wrap_socket, which
    verifies nothing unless they require it. TypeError or ValueError for bad arguments.
    """
    if ssl is True:
        made = TLSLink(_settings(**params), host, port)
    else:
        made = TLSLink(TLS(insecure=True), host, port, ssl)  # the context decides
    made.note = note
    return made


def _settings(
    key=None, cert=None, cert_reqs=0, cadata=None, server_hostname=None, do_handshake=True
):
    """Return a TLS for the arguments of ssl.wrap_socket. `do_handshake` is ignored."""
    ca = None
    if cert_reqs == _CERT_REQUIRED:
        ca = cadata.encode() if isinstance(cadata, str) else cadata  # str: PEM, not a path
    return TLS(ca, cert, key, None, server_hostname, cert_reqs != _CERT_REQUIRED)
