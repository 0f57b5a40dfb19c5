"""Run cases whose bytes travel in the frames of a WebSocket, through `flatmq.stream_websocket`.

What the client reads and writes at once depends on the frames and on the network below. In half of
the cases, which their bytes decide, frames and answers to the upgrade are spoilt.

Runs on CPython and on MicroPython.
"""

from binascii import crc32

from flatmq.stream_websocket import WebSocket
from hostile import drive
from hostile.server_frames import Chance, Server

ENDS = ("closed", "timeout")  # the kinds of error of a WebSocket that does not open
READ_ERROR = 113  # EHOSTUNREACH: not the peer's doing


def is_hostile(data):
    """Return whether the frames of the case that these bytes stand for are spoilt."""
    return crc32(data) & 1 == 1


def _nothing(*_):
    pass


class Unjudged:
    """A watcher of the bytes below the WebSocket that does not judge them.

    `websocket_oracle` has one that does, whose methods say what it is notified of.
    """

    def __getattr__(self, name):
        return _nothing


class Inner:
    """The link below the WebSocket, and its stream: a script, as in `drive`.

    `owner` has the state of the network.
    """

    def __init__(self, owner, server, judge):
        self.owner = owner
        self.server = server
        self.judge = judge
        self.address = None
        self.hostile = False
        self.connect()

    def resolve(self):
        self.address = True

    def connect(self):
        self.data = self.request = b""
        self.at = 0
        self.answered = False
        self.is_open = False  # the WebSocket
        self.offered = None  # bytes that the network has not taken

    def stream(self):
        return self

    def wait(self, ms, out):
        raise drive.Stuck("poll(0) waits")

    def close(self):
        pass

    def give(self, data):
        """Have the next reads give the frames that carry these bytes."""
        frames = self.server.carry(data, self.hostile and self.server.chance.pick(3) == 0)
        self.data = self.data[self.at :] + frames
        self.at = 0

    def readinto(self, into):
        owner = self.owner
        owner.count_call()
        if owner.gone == 2:
            raise OSError(READ_ERROR, "read")
        n = min(len(self.data) - self.at, len(into))
        if not n:
            return 0 if owner.gone else None
        if self.is_open:
            pick = self.server.chance.pick
            if pick(16) == 0:
                owner.moved += 1
                return None
            if pick(4) == 0:
                n = 1 + pick(n)
        piece = self.data[self.at : self.at + n]
        into[:n] = piece
        self.at += n
        owner.moved += n
        self.judge.gave(piece)
        return n

    def write(self, buf, off, n):
        owner = self.owner
        owner.count_call()
        if n <= 0:
            raise drive.Stuck("an empty write")
        if owner.gone == 2:
            raise OSError(READ_ERROR, "write")
        data = bytes(memoryview(buf)[off : off + n])
        if self.offered is not None and data != self.offered:
            raise drive.Stuck("other bytes than those that were not taken")
        pick = self.server.chance.pick
        if self.is_open:
            n = owner.room_for(n)
        elif pick(4) == 0:
            n = 1 + pick(n)
        self.offered = data[n:] or None
        if self.offered:
            self.judge.refused()
        if not n:
            return None
        data = data[:n]
        owner.moved += n
        if self.answered:
            self.judge.took(data)
        else:
            self.request += data
            if self.request.endswith(b"\r\n\r\n"):
                self.answered = True
                spoilt = self.hostile and self.server.chance.pick(4) == 0
                self.data = self.server.answer(self.request, spoilt)
                self.judge.asked(self.data, self.request)
        return n


class Below:
    """A replacement for `tls` of a WebSocket, without TLS: its frames have a mask of zeros."""

    def __init__(self, inner):
        self.inner = inner

    def link(self, host, port):
        return self.inner


class Link(drive.Link):
    """The link of `drive`, with a WebSocket between its stream and the bytes of the server."""

    def __init__(self, note, server, judge, zero):
        drive.Link.__init__(self, note)
        self.judge = judge
        self.inner = Inner(self, server, judge)
        below = {"tls": Below(self.inner)} if zero else {"link": self.inner}
        self.socket = WebSocket("broker", **below)

    def resolve(self):
        self.socket.resolve()
        self.address = self.socket.address

    def connect(self):
        drive.Link.connect(self)
        self.socket.connect()

    def stream(self):
        if not self.socket.stream():
            return None
        self.inner.is_open = True
        self.judge.opened()
        return self

    def wait(self, ms, out):
        self.socket.wait(ms, out)

    def close(self):
        if self.open:
            self.judge.closed()
        drive.Link.close(self)
        self.socket.close()

    def give(self, data):
        self.inner.give(data)

    def is_read(self):
        return self.inner.at == len(self.inner.data)

    def readinto(self, into):
        n = self.through(self.socket.readinto, into)
        if n:
            piece = bytes(into[:n])
            self.judge.read(piece)
            self.note((drive.READ, piece))
        return n

    def write(self, buf, off, n):
        if n <= 0:
            raise drive.Stuck("an empty write")
        took = self.through(self.socket.write, buf, off, n)
        if took:
            self.judge.wrote(bytes(memoryview(buf)[off : off + took]))
        return self.taken(buf, off, n, took)

    def through(self, call, *arguments):
        """Return what a call of the WebSocket returns."""
        try:
            return call(*arguments)
        except OSError as e:
            self.judge.failed(e)
            raise


class Driver(drive.Driver):
    """A driver of a client over WebSocket."""

    def __init__(self, options, note, hostile, server, judge):
        self.hostile = hostile
        self.judge = judge
        link = Link(note, server, judge, server.chance.pick(2))
        drive.Driver.__init__(self, options, note, link)

    def step(self, step, argument):
        self.link.inner.hostile = self.hostile
        drive.Driver.step(self, step, argument)
        self.link.inner.hostile = False

    def dial(self):
        before = self.client.stats.losses
        drive.Driver.dial(self)
        error = self.client.error
        if self.client.stats.losses > before and error.kind not in ENDS:
            raise AssertionError("a WebSocket that does not open: " + error.kind)

    def quiet(self):
        drive.Driver.quiet(self)
        if self.up:
            self.judge.quiet(self.link)


def run(data, note, marked=None, judge=None):
    """Run a case, as `drive.run` does, over WebSocket. Returns the Server."""
    server = Server(Chance(crc32(data, 1)))

    def make(options, note):
        return Driver(options, note, is_hostile(data), server, judge or Unjudged())

    drive.run(data, note, marked, make)
    return server
