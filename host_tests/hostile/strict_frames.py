"""A strict decoder of both sides of a WebSocket, and of the answer to its upgrade.

Written from RFC 6455 apart from the client, and with nothing of it. A length that is longer than
it must be is accepted from a server, because the client accepts it.
"""

import base64
import hashlib
import re
from typing import NamedTuple

from packets.fields import Broken

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
PROTOCOL_ERROR, UNSUPPORTED, TOO_BIG = 1002, 1003, 1009
LARGEST = 1 << 30  # bytes of a frame that the client refuses
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def is_code(code: int) -> bool:
    """Return whether that code may be in a Close frame (section 7.4)."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


class ServerFrames:
    """The client's view of the frames of a server, as far as they have come.

    `payload` is all that may be delivered. `faults` are the close codes, one of which must be the
    client's, once a rule is certainly broken; `maybe` is set as soon as it may see that.
    `closed` is the payload of the Close frame.
    """

    def __init__(self) -> None:
        self.payload = bytearray()
        self.pings: list[bytes] = []
        self.faults: set[int] = set()
        self.maybe: set[int] = set()
        self.closed: bytes | None = None
        self._buf = bytearray()
        self._left = 0  # bytes of payload to come of a data frame
        self._fragments = False

    @property
    def is_over(self) -> bool:
        """Return whether nothing that follows counts."""
        return bool(self.faults) or self.closed is not None

    @property
    def is_in_control(self) -> bool:
        """Return whether the first part of a Ping or Close frame is there, and not all of it."""
        return not self._left and bool(self._buf) and self._buf[0] & 15 in (PING, CLOSE)

    def feed(self, data: bytes) -> None:
        self._buf += data
        while not self.is_over and self._step():
            pass

    def _step(self) -> bool:
        """Take a frame, or payload of one. Returns whether there was enough of it."""
        buf = self._buf
        if self._left:
            piece = buf[: self._left]
            self.payload += piece
            self._left -= len(piece)
            del buf[: len(piece)]
            return bool(piece)
        if not buf:
            return False
        opcode, is_final = buf[0] & 15, buf[0] > 127
        self.faults = self._first(buf[0], opcode, is_final)
        if self.faults or len(buf) < 2:
            return False
        size = buf[1] & 127
        if buf[1] > 127 or (opcode >= CLOSE and size > 125):
            self.faults = {PROTOCOL_ERROR}
            return False
        at = 2
        if size > 125:
            at = 4 if size == 126 else 10
            bits = 8 * max(0, at - len(buf))
            size = int.from_bytes(buf[2:at], "big") << bits
            if size >= LARGEST:
                self.maybe = {TOO_BIG} if size < 1 << 63 else {TOO_BIG, PROTOCOL_ERROR}
            if bits:
                return False
            self.faults = self.maybe
            if self.faults:
                return False
        if opcode < CLOSE:
            self._fragments = not is_final
            self._left = size
            del buf[:at]
            return True
        if len(buf) < at + size:
            return False
        payload = bytes(buf[at : at + size])
        del buf[: at + size]
        if opcode == PING:
            self.pings.append(payload)
        elif opcode == CLOSE:
            self.closed = payload
        return True

    def _first(self, first: int, opcode: int, is_final: bool) -> set[int]:
        """The codes for a frame that begins with that byte; none if it may."""
        faults = set()
        if first & 0x70:
            faults.add(PROTOCOL_ERROR)
        if opcode == TEXT:
            faults.add(UNSUPPORTED)
        elif opcode in (CONTINUATION, BINARY):
            if self._fragments != (opcode == CONTINUATION):
                faults.add(PROTOCOL_ERROR)
        elif opcode not in (CLOSE, PING, PONG) or not is_final:
            faults.add(PROTOCOL_ERROR)
        return faults


class ClientFrames:
    """The frames that a client writes, as far as they are out. Broken if one breaks a rule."""

    def __init__(self) -> None:
        self.payload = bytearray()  # of data frames, also of one that is cut
        self.pongs: list[bytes] = []
        self.closed: bytes | None = None
        self.masks: set[bytes] = set()
        self.is_cut = False
        self._buf = bytearray()
        self._done = 0  # bytes of payload of the frame under way that are in `payload`

    def feed(self, data: bytes) -> None:
        self._buf += data
        while self._step():
            pass
        self.is_cut = bool(self._buf)

    def _step(self) -> bool:
        buf = self._buf
        if not buf:
            return False
        if self.closed is not None:
            raise Broken("bytes after a Close frame")
        if buf[0] not in (0x80 | BINARY, 0x80 | CLOSE, 0x80 | PONG):
            raise Broken(f"a frame that begins with {buf[0]:#x}")
        if len(buf) < 2:
            return False
        if buf[1] < 128:
            raise Broken("a frame without a mask")
        size = buf[1] & 127
        at = 2
        if size > 125:
            at = 4 if size == 126 else 10
            if buf[0] & CLOSE:
                raise Broken("a control frame of more than 125 bytes")
            if len(buf) < at:
                return False
            size = int.from_bytes(buf[2:at], "big")
            if size < (126 if at == 4 else 65536):
                raise Broken("a length longer than it must be")
        if len(buf) < at + 4:
            return False
        mask = bytes(buf[at : at + 4])
        at += 4
        payload = bytes(c ^ mask[i & 3] for i, c in enumerate(buf[at : at + size]))
        if buf[0] & 15 == BINARY:
            self.payload += payload[self._done :]
            self._done = len(payload)
        if len(payload) < size:
            return False
        self.masks.add(mask)
        if buf[0] & 15 == PONG:
            self.pongs.append(payload)
        elif buf[0] & 15 == CLOSE:
            self._close(payload)
        self._done = 0
        del buf[: at + size]
        return True

    def _close(self, payload: bytes) -> None:
        if len(payload) == 1 or (payload and not is_code(int.from_bytes(payload[:2], "big"))):
            raise Broken(f"a Close frame with {payload!r}")
        payload[2:].decode()
        self.closed = payload


class Answer(NamedTuple):
    """The way a client must take the answer to its upgrade.

    `size` is how long its head is, 0 if it has no end.
    """

    must_open: bool
    may_open: bool
    size: int


RIGHT = re.compile(
    rb"HTTP/1\.1 101 [ -~]*\r\n(?:[!#-'*+.^_`|~0-9A-Za-z-]+:[ \t]*[ -~]*\r\n)+\r\n", re.ASCII
)
MOST = 4096  # bytes of an answer


def judged_answer(answer: bytes, request: bytes) -> Answer:
    """Judge an answer (section 4.1).

    What is no right HTTP may open a WebSocket only if it says all that it must.
    """
    size = 0
    lines = []
    for line in answer.split(b"\n")[:-1]:
        size += len(line) + 1
        lines.append(line.strip())
        if not lines[-1]:
            break
    if not lines or lines[-1] or size >= MOST:
        return Answer(False, False, 0)
    fields: dict[bytes, list[bytes]] = {}
    for line in lines[1:-1]:
        name, _, value = line.partition(b":")
        fields.setdefault(name.lower(), []).append(value.strip())
    found = re.search(rb"^Sec-WebSocket-Key: (\S+)\r$", request, re.MULTILINE)
    assert found, request
    digest = base64.b64encode(hashlib.sha1(found[1] + GUID).digest())
    wanted = {b"sec-websocket-accept": digest, b"sec-websocket-protocol": b"mqtt"}
    may = bool(re.match(rb"HTTP/1\.\S*\s+101(\s|$)", lines[0]))
    may = may and all(value in fields.get(name, []) for name, value in wanted.items())
    may = may and b"websocket" in [value.lower() for value in fields.get(b"upgrade", [])]
    may = may and any(b"upgrade" in value.lower() for value in fields.get(b"connection", []))
    extensions = [value for value in fields.get(b"sec-websocket-extensions", []) if value]
    once = all(len(fields.get(name, [])) == 1 for name in (*wanted, b"upgrade", b"connection"))
    must = may and not extensions and once and bool(RIGHT.fullmatch(answer[:size]))
    must = must and all(len(line) <= 256 for line in lines)
    may = may and (not extensions or len(extensions) < len(fields[b"sec-websocket-extensions"]))
    return Answer(must, may, size)


REQUEST = re.compile(
    rb"GET /mqtt HTTP/1\.1\r\nHost: broker\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    rb"Sec-WebSocket-Key: ([A-Za-z0-9+/]{22}==)\r\nSec-WebSocket-Version: 13\r\n"
    rb"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def check_request(request: bytes) -> None:
    """Broken unless a client asks for a WebSocket as it must (section 4.1)."""
    found = REQUEST.fullmatch(request)
    if not found or len(base64.b64decode(found[1])) != 16:
        raise Broken(f"the request {request!r}")
