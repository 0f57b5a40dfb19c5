"""TLS by an SSLContext of the caller's, as a link like those of `flatmq.stream_cpython`."""

from __future__ import annotations

import ssl

from flatmq.stream_cpython import TCP
from flatmq.stream_tls_cpython import Stream


class TLS(TCP):
    """A link to `host` and `port`, by a `context` that says who is trusted."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port)
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._reads = False  # the handshake waits for bytes of the other side

    def stream(self) -> Stream | None:
        """The stream once the handshake is done, None before. OSError when it fails."""
        if self._tls is None:
            if super().stream() is None:
                return None
            assert self.sock is not None
            self.sock = self._tls = self._context.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._reads = True
            return None
        except ssl.SSLWantWriteError:
            self._reads = False
            return None
        except ValueError as error:  # a name that no certificate can have
            raise OSError(str(error)) from error
        self._reads = False
        return Stream(self._tls)

    def wait(self, ms: int, out: bool) -> None:
        if self._tls is not None and self._tls.pending():
            return  # bytes that were read from the network and not yet from here
        super().wait(ms, out and not self._reads)

    def close(self) -> None:
        self._tls = None
        self._reads = False
        super().close()
