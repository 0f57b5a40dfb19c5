"""TLS on MicroPython.

The stream is the TLS socket itself, which allocates nothing once it is connected.

The client has no state for the handshake: the socket continues it with each write and read, and
accepts CONNECT when it is done.
"""

import select

from .port import const, drop, load
from .stream_tcp import TCP

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import MQTTError
    from .stream_tls import TLS

_SHAKING_MS = const(100)  # most ms until the handshake is continued


class Link(TCP):
    """A TLS link to `host` and `port`.

    `stage` is the progress of a connection: "ca" and "cert" while these are loaded, "handshake",
    or "" before and after. A `context` replaces the files named in the settings, and decides what
    is verified.
    """

    def __init__(self, settings: "TLS", host: str, port: int, context: "Any" = None) -> None:
        super().__init__(host, port)
        self.stage = ""
        self._settings: Any = None if context else settings  # None once the context is made
        self._context = context
        self._name = settings.server_hostname or host
        self._has_cert = bool(settings.cert)
        self._digest_of, self._pins, self._reserve = load("stream_tls_settings", "").kept(
            settings, self._name
        )
        self._digest: bytes | None = None  # of the broker's key, or its address
        self._certified = False  # the broker has sent a certificate
        self._tls: Any = None
        self._ready: Any = None
        self._events = 0

    def accepted(self) -> None:
        """Hold memory for the next handshake: the broker has accepted the connection."""
        if self._reserve:
            try:  # noqa: SIM105 (there is no contextlib on a board)
                self._reserve.hold(True)
            except MemoryError:
                pass  # there is not even room for the call: the next connection tries without

    def _verify(self, der, depth):
        """Return 0, or -1 if the broker's public key is not pinned or it has another address."""
        self._certified = True
        if depth or not self._pins:
            return 0
        # An exception must not pass through Mbed TLS, which would not clean up.
        try:
            self._digest = self._digest_of(der)
        except Exception:
            return -1
        return 0 if self._digest in self._pins else -1

    def connect(self) -> None:
        """Begin to connect. ValueError for a certificate or a key that cannot be read."""
        self.stage = ""
        self._certified = False
        self._digest = None
        if not self._context:
            self._context = load("stream_tls_settings", "").context(
                self._settings, self, self._verify
            )
            self._settings = None
            drop("stream_tls_settings")
        if self._reserve:
            self._reserve.hold(False)
        super().connect()

    def stream(self) -> "Any":
        """Return the TLS socket once TCP is connected, None before."""
        s = super().stream()
        if not s:
            return None
        self.stage = "handshake"
        ready = select.poll()  # made first: the memory released below is for TLS alone
        if self._reserve:
            self._reserve.release()
        self._tls = self._context.wrap_socket(
            s, server_hostname=self._name, do_handshake_on_connect=False
        )
        # Poll the TLS socket: the socket below does not know of bytes that wait in TLS.
        self._events = select.POLLIN
        ready.register(self._tls, self._events)
        ready.ipoll(0)  # the first call makes the tuple of all later ones
        self._ready = ready
        return self._tls

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too. Without a connection, wait for that
        time.
        """
        if not self._ready:
            super().wait(ms, out)
            return
        if self.stage:
            if out:
                # The handshake waits for the broker: there is room to write, but nothing to send.
                # If a part of it found no room, it leaves after this wait.
                out = False
                ms = min(ms, _SHAKING_MS)
            else:
                self.stage = ""  # CONNECT has left
        mask = select.POLLIN | select.POLLOUT if out else select.POLLIN
        if mask != self._events:
            self._events = mask
            self._ready.modify(self._tls, mask)
        self._ready.ipoll(ms)

    def why(self, error: "Any") -> "MQTTError | None":
        """Return the fault of TLS that caused `error`, None if TLS was not the cause."""
        if not self.stage:
            return None
        from .stream_tls_errors import of_board

        found = of_board(
            error, self.stage, self._certified, self._has_cert, self._digest, self._pins,
            self._name, f"{self.host}:{self.port}"
        )  # fmt: skip
        drop("stream_tls_errors")
        return found

    def close(self) -> None:
        """Close both sockets, and forget them."""
        s = self._tls
        self._tls = self._ready = None
        try:
            if self._reserve:
                self._reserve.hold(False, s)
            elif s:
                s.close()
        finally:
            super().close()
