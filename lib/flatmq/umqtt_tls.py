"""TLS for `flatmq.umqtt`, with an SSLContext of the program or as umqtt has it for ssl=True.

The handshake takes place inside the first reads and writes, so that no call waits for a broker
that does not go on with it.
"""

import select

from .port import MICROPYTHON, const
from .umqtt import Link

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_TURN = const(50)  # ms


class TLS(Link):
    """TLS to `host` and `port`. `context` is an SSLContext, or True to verify as ssl.wrap_socket
    does with `params`, which is not at all unless they say so."""

    def __init__(self, host: str, port: int, context: "Any", params: "dict[str, Any]") -> None:
        Link.__init__(self, host, port)
        self._context = context
        self._params = params
        self._stream: Any = None
        self._events: Any = None

    def connect(self) -> None:
        """Begin to connect."""
        self._stream = None
        Link.connect(self)

    def stream(self) -> "Any":
        """The stream once TCP is connected, None before."""
        sock = Link.stream(self)
        if not sock:
            return None
        try:
            return self._wrapped(sock)
        except (OSError, ValueError, TypeError) as e:
            self.error = e
            raise

    def wait(self, ms: int, out: bool) -> None:
        """Return when there is something to read, when `out` and there is room to write, or after
        `ms` milliseconds."""
        if self._stream and not self.greeted:
            # The handshake waits for the broker; to wait for room would return at once.
            ms = min(ms, _TURN)
            out = False
        self._wait(ms, out)

    if MICROPYTHON:

        def _wrapped(self, sock):
            import ssl

            if self._context is True:
                params: dict[str, Any] = {"do_handshake": False}
                params.update(self._params)
                self._stream = ssl.wrap_socket(sock, **params)
            else:
                self._stream = self._context.wrap_socket(
                    sock, server_hostname=self.host, do_handshake_on_connect=False
                )
            self._events = select.poll()
            self._events.register(self._stream, select.POLLIN)
            return self._stream

        def _wait(self, ms, out):
            if not self._stream:
                Link.wait(self, ms, out)
                return
            mask = select.POLLIN | select.POLLOUT if out else select.POLLIN
            self._events.modify(self._stream, mask)
            self._events.ipoll(ms)

        def close(self) -> None:
            """Close the stream and the socket; they are not touched again."""
            stream = self._stream
            self._stream = self._events = None
            try:
                if stream:
                    stream.close()
            finally:
                Link.close(self)

    else:

        def _wrapped(self, sock):
            import ssl

            context = self._context
            name = self.host
            if context is True:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                name = self._params.get("server_hostname", name)
            self.sock = context.wrap_socket(
                sock.sock, server_hostname=name, do_handshake_on_connect=False
            )
            self._stream = _Stream(self.sock, (ssl.SSLWantReadError, ssl.SSLWantWriteError))
            return self._stream

        def _wait(self, ms, out):
            Link.wait(self, ms, out)


class _Stream:
    """A TLS socket of CPython with the calls of a MicroPython stream. `later` are the exceptions
    that say that it would have to wait."""

    def __init__(self, sock, later):
        self.sock = sock
        self._later = later

    def readinto(self, buf):
        try:
            return self.sock.recv_into(buf)
        except self._later:
            return None

    def write(self, buf, off, n):
        try:
            return self.sock.send(memoryview(buf)[off : off + n])
        except self._later:
            return None
