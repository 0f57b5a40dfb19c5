"""A serial line to `flatmq bridge`, as a link of the client: see docs/serial.md.

    client = Client(b"pico-1", link=stream_uart.usb())
    client = Client(b"pico-1", link=stream_uart.Link(UART(0, 115200)))

Lost bytes end the connection, and the client makes a new one. Once connected, nothing is
allocated.
"""

import errno
import random
import select
import sys

from . import wire
from .frames import ACK, ASK, BEGIN, CLOSE, DATA, HEAD, OPEN, PAYLOAD, SMALL, Decoder, Encoder
from .port import const, ticks_add, ticks_diff, ticks_ms
from .wire import number

wire.held = True

_AHEAD = const(2)  # frames that may be unacknowledged
_TRIES = const(5)  # unanswered requests after which the bridge is considered gone
_CLOSED = const(0)
_OPENING = const(1)
_OPEN = const(2)


class Link:
    """A serial line on a machine.UART with `timeout` 0, which is its default.

    room        bytes that the UART buffers while nothing reads: its `rxbuf`, 128 to 65,535
    patience    ms until the bridge is asked for a missing answer, 1 to 60,000; the time doubles
                with each of five requests

    `errors` counts incoming frames that were cut or damaged. ValueError names a value that is out
    of range.
    """

    def __init__(self, uart, room: int = 256, patience: int = 300) -> None:
        self.address: bool | None = None
        self._tx = Encoder()
        self._rx = Decoder()
        number("room", room, 128, 65535)
        self._hello = bytes((1, room >> 8, room & 255))
        self._patience = number("patience", patience, 1, 60000)
        # Payload that the client has not read yet, and payload that comes in behind it. The
        # bridge limits what it sends without an acknowledgement: 105 bytes of `room` are for
        # frames without payload, and 9 bytes of each frame are not payload.
        self._kept = bytearray(room - 105 - 9 + PAYLOAD)
        self._held = 0  # bytes of it in use; 0: the unread payload is in the last frame
        self._chunk = bytearray(64)
        self._at = self._have = 0  # the part of it not yet decoded
        self._sent = 0  # bytes of the outgoing frame that are on the line
        self._state = _CLOSED
        self._id = random.getrandbits(16)
        self._seq = self._acked = 0
        self._wanted = self._told = 0  # the next DATA frame; the same as acknowledged so far
        self._left = 0  # bytes of payload that the client has not read
        self._owe = False  # an acknowledgement is due
        self._asked = 0
        self._due = 0
        self._attach(uart)

    @property
    def errors(self) -> int:
        """The number of incoming frames that were cut or damaged."""
        return self._rx.bad

    def _attach(self, uart):
        self._in = uart
        self._out = uart
        self._readable = select.poll()
        self._readable.register(uart, select.POLLIN)

    # The link

    def resolve(self) -> None:
        """Do nothing: there is no name to look up."""
        self.address = True

    def connect(self) -> None:
        """Ask the bridge for a connection to its broker."""
        self._id = self._id + 1 + random.getrandbits(15) & 0xFFFF
        self._state = _OPENING
        self._seq = self._acked = self._wanted = self._told = 0
        self._left = self._held = self._asked = 0
        self._owe = False
        self._due = ticks_ms()
        self._tick(False)

    def stream(self) -> "Link | None":
        """Return this link once the bridge has connected, None before."""
        self._turn(False)
        if self._state == _CLOSED:
            raise OSError(errno.ECONNREFUSED)
        return self if self._state == _OPEN else None

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too.
        """
        end = ticks_add(ticks_ms(), ms)
        before = self._state
        while True:
            self._turn(False)
            if self._left or self._state != before:
                return
            if out and self._state == _OPEN and self._has_room():
                return
            ms = ticks_diff(end, ticks_ms())
            if ms <= 0:
                return
            self._sleep(self._idle(ms))

    def close(self) -> None:
        """Send CLOSE to the bridge, and take in nothing more."""
        if self._state != _CLOSED:
            self._flush()
            self._fail()

    # The stream

    def readinto(self, buf: memoryview) -> "int | None":
        """Read available bytes into `buf`.

        Returns their number, None if there are none, 0 at the end of the stream.
        """
        if not self._left:
            self._turn(False)
        n = min(self._left, len(buf))
        if not n:
            return 0 if self._state == _CLOSED else None
        src = self._kept if self._held else self._rx.buf
        at = (self._held or HEAD + self._rx.size) - self._left
        self._left -= n
        i = 0
        while i < n:
            buf[i] = src[at]
            at += 1
            i += 1
        if self._held and not self._left:
            self._held = 0
            self._told = self._wanted
            self._owe = True
            self._tick(False)
        return n

    def write(self, buf: memoryview, off: int, n: int) -> "int | None":
        """Write up to `n` bytes of `buf` from `off` on.

        Returns their number, None if there is no room.
        """
        if not self._has_room():
            self._turn(True)
        if self._state != _OPEN:
            raise OSError(errno.ECONNRESET)
        if not self._has_room():
            return None
        n = min(n, PAYLOAD)
        if self._seq == self._acked:
            self._hear()
        self._send(DATA, buf, off, n)
        self._seq = self._seq + 1 & 255
        return n

    def _has_room(self):
        return self._sent == self._tx.n and (self._seq - self._acked & 255) < _AHEAD

    # Outgoing frames

    def _send(self, kind, src, off, n):
        head = self._tx.head
        head[0] = kind
        head[1] = self._id >> 8
        head[2] = self._id & 255
        head[3] = self._seq
        head[4] = self._told
        self._tx.frame(src, off, n)
        self._sent = 0
        self._owe = False
        self._flush()

    def _flush(self):
        """Send the rest of the last frame. Returns whether all of it is on the line."""
        if self._sent < self._tx.n:
            self._sent += self._write(self._tx.out, self._sent, self._tx.n - self._sent) or 0
        return self._sent == self._tx.n

    def _fail(self):
        self._state = _CLOSED
        self._left = self._held = 0
        self._send(CLOSE, self._hello, 0, 0)

    def _tick(self, heard):
        """Send what is due, if the line is free.

        `heard`: everything received was decoded, so a missing answer is late.
        """
        if not self._flush() or self._state == _CLOSED:
            return
        late = ticks_diff(ticks_ms(), self._due) >= 0
        if self._state == _OPENING:
            if late:
                self._ask(OPEN, 3)
        elif late and heard and self._seq != self._acked:
            if self._asked == _TRIES:
                self._fail()
            else:
                self._ask(ASK, 0)
        elif self._owe:
            self._send(ACK, self._hello, 0, 0)

    def _ask(self, kind, n):
        self._due = ticks_add(ticks_ms(), self._patience << self._asked)
        if self._asked < _TRIES:
            self._asked += 1
        self._send(kind, self._hello, 0, n)

    # Incoming frames

    def _turn(self, on):
        """Take in available bytes up to a frame with payload, then send what is due.

        With `on`, take in everything: the client may have to write before it reads, and
        the acknowledgement that makes room may be behind the payload. But no more than the line
        buffers: noise may come faster than it is decoded.
        """
        most = len(self._kept)
        while on or not self._left:
            if self._at == self._have:
                if most <= 0:
                    on = False
                    break
                n = self._read(self._chunk)
                if not n:
                    if n == 0:
                        self._state = _CLOSED  # the other end is gone
                    on = True
                    break
                self._at = 0
                self._have = n
                most -= n
            if self._left and not self._held:
                self._keep(self._left)
            self._at = self._rx.take(self._chunk, self._at, self._have)
            if self._rx.size >= 0 and self._state != _CLOSED:
                self._frame(self._rx.buf)
        self._tick(on)

    def _frame(self, head):
        kind = head[0] - SMALL
        if kind == BEGIN and self._state == _OPEN:
            self._state = _CLOSED  # a new bridge, which does not know the connection
        if head[1] << 8 | head[2] != self._id:
            return  # from a connection that has ended
        if kind == CLOSE:
            self._state = _CLOSED
        elif self._state == _OPENING:
            if kind == OPEN:
                self._state = _OPEN
                self._hear()
        elif kind == DATA or kind == ACK or kind == ASK:
            self._follow(kind, head)

    def _follow(self, kind, head):
        n = head[4] - self._acked & 255
        if (
            head[3] != self._wanted  # something was lost
            or n > (self._seq - self._acked & 255)
            or self._held + self._rx.size > len(self._kept)
        ):
            self._fail()
            return
        self._acked = head[4]
        self._hear()
        if kind == DATA:
            self._wanted = self._wanted + 1 & 255
            self._left += self._rx.size
            if self._held:  # acknowledged once read, so that the bridge sends no more than fits
                self._keep(self._rx.size)
                return
            self._told = self._wanted
        if kind != ACK:
            self._owe = True

    def _keep(self, n):
        """Append the last `n` bytes of the frame to `_kept`."""
        src = self._rx.buf
        at = HEAD + self._rx.size
        n = at - n
        while n < at:
            self._kept[self._held] = src[n]
            self._held += 1
            n += 1

    def _hear(self):
        self._asked = 0
        self._due = ticks_add(ticks_ms(), self._patience)

    # The line

    def _read(self, buf):
        """Read available bytes.

        Returns their number, None if there are none, 0 if the line is gone.
        """
        n = self._in.any()
        return self._in.readinto(buf, min(n, len(buf))) if n else None

    def _write(self, buf, at, n):
        """Write to the line. Returns the number of bytes written, None if there is no room."""
        return self._out.write(buf, at, n)

    def _idle(self, ms):
        """Return how many of `ms` milliseconds there is nothing to do if nothing comes in."""
        if self._sent < self._tx.n:
            return 1
        if self._state == _OPENING or (self._state == _OPEN and self._seq != self._acked):
            return min(ms, max(1, ticks_diff(self._due, ticks_ms())))
        return ms

    def _sleep(self, ms):
        self._readable.ipoll(ms)


class USB(Link):
    """A serial line on standard input and output, which are USB on many boards."""

    def _attach(self, uart):
        self._one = bytearray(1)
        # Not sys.stdin itself, which turns "\r" into "\n".
        super()._attach(sys.stdin.buffer)
        self._out = sys.stdout.buffer
        self._writable = select.poll()
        self._writable.register(self._out, select.POLLOUT)

    def _read(self, buf):
        # Reading more than is available would block, and the number available is not known.
        n = 0
        while n < len(buf) and self._is(self._readable):
            if not self._in.readinto(self._one):
                return n or 0
            buf[n] = self._one[0]
            n += 1
        return n or None

    def _write(self, buf, at, n):
        return self._out.write(buf, at, n) if self._is(self._writable) else None

    def _is(self, poll):
        for _ in poll.ipoll(0):
            return True
        return False


def usb(room: int = 0, patience: int = 300) -> USB:
    """Return a link over USB serial, which a board's REPL uses, too.

    `room` is the size in bytes of the board's buffer for standard input; 0: the usual size for
    the board. print() still works: the bridge shows its output. So does Ctrl-C at a terminal,
    as no frame contains it.
    """
    return USB(None, room or (512 if sys.platform == "rp2" else 256), patience)
