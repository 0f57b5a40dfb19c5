"""Open a WebSocket: the HTTP request and its answer (RFC 6455 section 4). No I/O of its own.

Loaded for each connection, and not kept.
"""

import binascii
import errno
import hashlib
import os

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_GUID = const(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
_MOST = const(4096)  # most bytes of an answer
_LINE = const(256)  # most bytes that are kept of one of its lines
_LF = const(10)
_H = const(72)
_BY_PEER = (errno.ECONNRESET, 32)  # EPIPE, a name that boards lack
_CLOSED = const(
    "closed before the WebSocket was open: check that this port is a WebSocket listener, and "
    "whether it needs TLS"
)
_NAMES = const((b"upgrade", b"connection", b"accept", b"protocol", b"extensions"))


def check(host: str, path: str) -> None:
    """Raise ValueError or TypeError if `host` or `path` cannot be used in a request."""
    if not isinstance(host, str) or not host or not _is_plain(host):
        raise ValueError(f"host must be a name or an address, not {host!r}")
    if not isinstance(path, str):
        raise TypeError(f"path must be str, not {type(path).__name__}")
    if path[:1] != "/" or not _is_plain(path):
        path = _shown(path)
        raise ValueError(f"path must begin with / and be ASCII without spaces, not {path!r}")


def _shown(path):
    """Return a path without its query, which may have a token: no error shows that."""
    return path.split("?")[0]


def _is_plain(text):
    for c in text:
        if not "!" <= c <= "~":
            return False
    return True


class Upgrade:
    """One request for `path` and its answer.

    `where` is the host, with the port if it is not the default. `secure`: the request goes through
    TLS, whose errors are reported unchanged. `unsent` is the number of bytes of the request that
    are still to be written.
    """

    def __init__(self, where: str, path: str, secure: bool) -> None:
        key = binascii.b2a_base64(os.urandom(16))[:-1]
        self._accept = binascii.b2a_base64(hashlib.sha1(key + _GUID).digest())[:-1]
        self._path = _shown(path)
        self._query = path[len(self._path) :] or "\n"  # which is in no line
        self._secure = secure
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {where}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key.decode()}\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        ).encode()
        self.unsent = len(self._request)
        # One byte is read at a time: the bytes behind the answer belong to the first frame, and
        # must not be read here.
        self._one = bytearray(1)
        self._left = _MOST
        self._line = bytearray()
        self._found: dict[bytes, bytes] = {}
        self._accepted = False  # the status line was accepted

    def step(
        self,
        read: "Callable[[Any], int | None]",
        write: "Callable[[Any, int, int], int | None]",
    ) -> bool:
        """Continue as far as possible without waiting. Returns whether the WebSocket is open.
        OSError, which says what to check, if it cannot be opened."""
        try:
            return self._step(read, write)
        except OSError as e:
            if self._secure or e.errno not in _BY_PEER:
                raise
        raise OSError(_CLOSED)

    def _step(self, read, write):
        while self.unsent:
            n = write(self._request, len(self._request) - self.unsent, self.unsent)
            if not n:
                return False
            self.unsent -= n
        while True:
            n = read(self._one)
            if n is None:
                return False
            if not n:
                raise OSError(_CLOSED)
            if self._take(self._one[0]):
                return True

    def _take(self, c):
        """Take in a byte of the answer. Returns whether it was the last one."""
        self._left -= 1
        if not self._left:
            raise OSError(f"the answer has more than {_MOST} bytes: check host and port")
        if c != _LF:
            if c != _H and not (self._line or self._accepted):
                raise OSError(
                    "the answer is not HTTP: check that this port is a WebSocket listener, and "
                    "whether it needs TLS"
                )
            if len(self._line) < _LINE:
                self._line.append(c)
            return False
        line = bytes(self._line).strip()
        self._line = bytearray()
        if not self._accepted:
            self._status(line)
        elif line:
            self._field(line)
        else:
            self._check()
            return True
        return False

    def _status(self, line):
        words = line.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"101":
            text = str(line)[2:-1].replace(self._query, "")
            raise OSError(
                f"answered {text}: check the path {self._path!r}, and that this port "
                "speaks MQTT over WebSocket"
            )
        self._accepted = True

    def _field(self, line):
        name, _, value = line.partition(b":")
        name = name.lower()
        if name.startswith(b"sec-websocket-"):
            name = name[14:]
        if name in _NAMES:
            self._found[name] = value.strip()

    def _check(self):
        found = self._found
        if (
            found.get(b"upgrade", b"").lower() != b"websocket"
            or b"upgrade" not in found.get(b"connection", b"").lower()
        ):
            raise OSError("answered 101 without Upgrade: websocket: a proxy does not support it")
        if found.get(b"accept") != self._accept:
            raise OSError("wrong Sec-WebSocket-Accept: a proxy or cache answered, not the broker")
        if found.get(b"protocol") != b"mqtt":
            raise OSError(
                f"sub-protocol mqtt not accepted: check that MQTT is served at {self._path!r}"
            )
        if found.get(b"extensions"):
            raise OSError("the server uses an extension that was not requested: turn it off there")
