"""The bridge's answers to a board's frames, without any I/O; see docs/serial.md.

Times are in seconds, of any clock that does not go back.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, Protocol

from flatmq.frames import (
    ACK,
    ASK,
    BEGIN,
    CLOSE,
    DATA,
    HEAD,
    OPEN,
    PAYLOAD,
    SIZE,
    SMALL,
    Decoder,
    Encoder,
)

VERSION = 1
CONTROL = 15  # maximum bytes on the line of a frame without payload
# Bytes of a board's buffer for frames without payload, which are never reported as read:
# OPEN, CLOSE, three acknowledgements (a board has two frames under way, and may ask), two ASK.
RESERVE = 7 * CONTROL
LEAST_ROOM = RESERVE + CONTROL + 2  # for one byte of payload at a time
PATIENCE = 0.3  # seconds until a board is asked whether it got what it was sent
_AGAIN = 8  # times that, until it is asked once more
_GIVEN_UP = 200  # times that, until it is taken to be gone

State = Literal["closed", "opening", "open"]


class Upstream(Protocol):
    """The way to the broker, as a conversation uses it."""

    def open(self) -> None:
        """Begin a connection; then call `opened` or `ended`."""

    def send(self, data: bytes) -> None:
        """Pass bytes on."""

    def close(self) -> None:
        """End the connection after what was sent; its `opened` and `ended` are not awaited."""


class Conversation:
    """One end of a line to a board.

    `out` collects what is to be written to the line, `text` what the board printed; the caller
    takes both from there.

    hold: while True, bytes are not acknowledged to the board, so that it sends no more. up, down:
    bytes of payload so far; frames: those that came in; lost: connections that ended because
    something was missing.
    """

    def __init__(self, upstream: Upstream, patience: float = PATIENCE) -> None:
        self.out = bytearray()
        self.text = bytearray()
        self.state: State = "closed"
        self.hold = False
        self.up = self.down = self.frames = self.lost = self.opens = 0
        self._upstream = upstream
        self._patience = patience
        self._rx = Decoder(self.text)
        self._tx = Encoder()
        self._id = -1
        self._room = 0  # bytes of payload frames that the board takes in
        self._seq = self._wanted = self._told = 0
        self._owe = False  # the board is owed an acknowledgement
        self._unread: deque[int] = deque()  # sizes of the payload frames under way
        self._queue = bytearray()
        self._ending = False  # the broker has closed; what is queued goes out first
        self._since = 0.0  # when the board was last heard, or first sent something
        self._asked = 0
        self._told_end = True  # the board knows that the connection has ended

    @property
    def bad(self) -> int:
        """The number of frames that came in torn or spoiled."""
        return self._rx.bad

    @property
    def wants(self) -> bool:
        """True while more bytes from the broker can be accepted."""
        return self.state == "open" and not self._queue and not self._ending

    # What happens

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes that came in from the line."""
        at = 0
        while at < len(data):
            at = self._rx.take(data, at, len(data))
            if self._rx.size >= 0:
                self.frames += 1
                frame = bytes(self._rx.buf[: HEAD + self._rx.size])
                self._on_frame(frame[0], frame[1] << 8 | frame[2], frame, now)
        self.tick(now)

    def opened(self, now: float) -> None:
        """Note that the connection to the broker is there."""
        if self.state == "opening":
            self.state = "open"
            self.opens += 1
            self._put(OPEN)
            self.tick(now)

    def send(self, data: bytes, now: float) -> None:
        """Take bytes that came from the broker."""
        self._queue += data
        self.tick(now)

    def ended(self, now: float) -> None:
        """Note that the broker has closed the connection, or that there is none to be had."""
        self._ending = True
        self.tick(now)

    def plugged(self, now: float) -> None:
        """Begin on a new line: a connection that the board may have is not of this bridge."""
        self._put(BEGIN, who=0)

    def leave(self, now: float) -> None:
        """The bridge ends."""
        self._end(now)

    def unplugged(self) -> None:
        """The line is gone."""
        self._rx = Decoder(self.text)
        self.out.clear()
        self._end(None)

    def tick(self, now: float) -> None:
        """Do what is due. To be called at `due`."""
        if self.state == "open":
            self._send_queue(now)
        if self._ending and not self._queue and self.state != "closed":
            self._end(now)
        if self._owe and not self.hold and self.state == "open":
            self._put(ACK)
        due = self.due
        if due is None or now < due:
            return
        self._asked += 1
        if self.state == "open" and self._asked > 2:
            self._fail(now)
        elif self.state == "open":
            self._put(ASK)
        elif self._asked > 2:
            self._told_end = True
        else:
            self._put(CLOSE)

    @property
    def due(self) -> float | None:
        """Return when `tick` has something to do if nothing else happens; None for never."""
        if (self.state == "open" and self._unread) or (
            self.state == "closed" and not self._told_end
        ):
            return self._since + self._patience * (1, _AGAIN, _GIVEN_UP)[self._asked]
        return None

    # Frames

    def _on_frame(self, kind: int, who: int, frame: bytes, now: float) -> None:
        if kind == OPEN:
            self._on_open(who, frame)
        elif kind not in (DATA, ACK, ASK, CLOSE):
            return
        elif who != self._id or (self.state == "closed" and kind != CLOSE):
            if kind != CLOSE:  # the connection began before this bridge did, or has ended here
                self._put(CLOSE, who=who)
        elif kind == CLOSE:
            self._end(None)
        elif self.state == "open":
            self._follow(kind, frame, now)

    def _on_open(self, who: int, frame: bytes) -> None:
        if who == self._id and self.state != "closed":  # it asks again
            if self.state == "open" and not self._wanted:
                self._put(OPEN)
            return
        self._end(None)
        self._id = who
        hello = frame[HEAD:]
        room = hello[1] << 8 | hello[2] if len(hello) == 3 else 0
        if hello[:1] != bytes((VERSION,)) or room < LEAST_ROOM:
            self.text += b"\nbridge: a board with another version of the frames, or no room\n"
            self._put(CLOSE)
            return
        self._room = room - RESERVE
        self._seq = self._wanted = self._told = self._asked = 0
        self._ending = self._owe = self.hold = False
        self.state = "opening"
        self._upstream.open()

    def _follow(self, kind: int, frame: bytes, now: float) -> None:
        read = len(self._unread) - (self._seq - frame[4] & 255)
        if frame[3] != self._wanted or not 0 <= read <= len(self._unread):
            self._fail(now)
            return
        for _ in range(read):
            self._unread.popleft()
        self._since = now
        self._asked = 0
        if kind == DATA:
            self._wanted = self._wanted + 1 & 255
            self.up += len(frame) - HEAD
            self._upstream.send(frame[HEAD:])
            self._owe = True
        elif kind == ASK:
            self._put(ACK)

    def _send_queue(self, now: float) -> None:
        while self._queue:
            free = self._room - sum(self._unread)
            n = self._fits(free)
            if not n or (free < SIZE and n < min(PAYLOAD, len(self._queue)) and self._unread):
                return  # rather a whole frame soon than a small one now
            if not self._unread:
                self._since = now
                self._asked = 0
            size = self._put(DATA, n)
            self._unread.append(size)
            self._seq = self._seq + 1 & 255
            self.down += n
            del self._queue[:n]

    def _fits(self, free: int) -> int:
        """Return how many queued bytes fit into a frame of at most `free` bytes on the line."""
        n = 0
        free -= CONTROL
        for c in self._queue[:PAYLOAD]:
            free -= 2 if c < 32 or c >= 0xFA else 1
            if free < 0:
                break
            n += 1
        return n

    def _put(self, kind: int, n: int = 0, who: int | None = None) -> int:
        head = self._tx.head
        number = self._id if who is None else who
        if not self.hold:
            self._told = self._wanted
            self._owe = False
        head[:] = (kind | SMALL, number >> 8, number & 255, self._seq, self._told)
        self._tx.frame(self._queue, 0, n)
        self.out += self._tx.out[: self._tx.n]
        return self._tx.n

    def _fail(self, now: float) -> None:
        self.lost += 1
        self._end(now)

    def _end(self, now: float | None) -> None:
        """The connection is over; without a time the board knows it."""
        if self.state == "closed":
            self._told_end = self._told_end or now is None
            return
        self._told_end = now is None
        if now is not None:
            self._put(CLOSE)
            self._since = now
            self._asked = 0
        self.state = "closed"
        self._queue.clear()
        self._unread.clear()
        self._upstream.close()
