"""TLS on MicroPython.

The stream is the TLS socket itself, which allocates nothing once it is connected.

The client has no state for the handshake: the socket continues it with each write and read, and
accepts CONNECT when it is done.
"""

import gc
import select
import sys

import tls

from .port import collect, const
from .stream_tcp import TCP
from .stream_tls import SPARE, contents

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .errors import MQTTError
    from .stream_tls import TLS

# Mbed TLS allocates two buffers and 1.7 KB in small blocks for each connection, and 3 to 6 KB more
# in small blocks during the handshake. Each buffer here takes as much of the heap as one of TLS.
_IN = const(16725)
_OUT = const(4437)
_SMALL = const(1062)
# Pieces of the spare for the handshake. They are the first in the list of what is held; the others
# are held only while there is no connection.
_ONLINE = const(8)
_SHAKING_MS = const(100)  # most ms until the handshake is continued
# Ports on which Mbed TLS has a heap of its own.
_OWN_HEAP = ("esp32", "linux", "darwin", "win32", "webassembly")


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
        self._pins = settings.pins
        self._digest_of: Any = None
        if self._pins:
            from .stream_tls_pin import digest_of

            self._digest_of = digest_of
        self._digest: bytes | None = None  # of the broker's key
        self._certified = False  # the broker has sent a certificate
        self._tls: Any = None
        self._ready: Any = None
        self._events = 0
        self._kept: list[bytearray | None] = []
        n = settings.reserve
        if n is None:
            n = sys.platform not in _OWN_HEAP
        self._sizes: tuple[int, ...] = ()
        if n:
            n = (SPARE if n is True else n) // _ONLINE
            self._sizes = (n,) * _ONLINE + (_SMALL, _SMALL, _OUT, _IN)
            self._kept = [None] * len(self._sizes)
            above = _above()  # of the heap, all but its end
            self._kept[-2] = bytearray(_OUT)
            self._kept[-1] = bytearray(_IN)
            del above
            self._keep()

    def _keep(self):
        """Hold the memory that TLS will need: the application cannot use or fragment it.

        The buffers come first: a small block that takes a part of their place could keep it for
        good. Without the spare, small blocks of TLS and of the client would do that.
        """
        collect()
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self._claim()
        except MemoryError:
            pass  # the next connection tries with what there is

    def _claim(self):
        kept = self._kept
        i = len(kept)
        if i and self._tls:
            i = _ONLINE
        while i:
            i -= 1
            if kept[i] is None:
                kept[i] = bytearray(self._sizes[i])

    def _let_go(self):
        kept = self._kept
        for i in range(len(kept)):
            kept[i] = None
        collect()

    def accepted(self) -> None:
        """Hold the spare again: the broker has accepted the connection."""
        self._keep()

    def _load(self):
        s = self._settings
        context: Any = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
        # CERT_OPTIONAL: without an authority the certificate is still passed to `_verify`.
        context.verify_mode = tls.CERT_REQUIRED if s.ca else tls.CERT_OPTIONAL
        context.verify_callback = self._verify
        if s.ca:
            self.stage = "ca"
            context.load_verify_locations(contents(s.ca))
        if s.cert:
            self.stage = "cert"
            context.load_cert_chain(contents(s.cert), contents(s.key))
        self.stage = ""
        self._context = context
        self._settings = None

    def _verify(self, der, depth):
        """Return 0, or -1 if the broker's public key is not one of the pinned keys."""
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
            self._load()
        self._keep()
        super().connect()

    def stream(self) -> "Any":
        """Return the TLS socket once TCP is connected, None before."""
        s = super().stream()
        if not s:
            return None
        self.stage = "handshake"
        ready = select.poll()  # made first: the memory released below is for TLS alone
        self._let_go()
        self._tls = self._context.wrap_socket(
            s, server_hostname=self._name, do_handshake_on_connect=False
        )
        # Poll the TLS socket: the socket below does not know of bytes that wait in TLS.
        self._events = select.POLLIN
        ready.register(self._tls, self._events)
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
        from .port import drop
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
            if s:
                s.close()
        finally:
            super().close()
            self._keep()


def _above() -> bytearray:
    """Return a buffer that leaves room for those of TLS at the end of the largest free block.

    What the application claims is below them then, and what is short-lived does not split them.
    """
    collect()
    n = gc.mem_free()
    while n > _IN + _OUT:
        try:
            bytearray(n)
            break
        except MemoryError:
            n -= 1024
    collect()
    return bytearray(max(n - _IN - _OUT - 1024, 0))
