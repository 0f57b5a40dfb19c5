"""Run cases whose bytes travel in the frames of a WebSocket, through `flatmq.stream_websocket`.

A case is run in one of three ways, which its bytes decide:

STEADY   the client reads and writes just as without WebSocket: every event must be the same
LOOSE    what the client reads and writes at once depends on the frames and on the network below
HOSTILE  as LOOSE, with frames and answers to the upgrade that are spoilt

Runs on CPython and on MicroPython.
"""

from binascii import crc32

from flatmq.stream_websocket import WebSocket
from hostile import drive
from hostile.server_frames import Chance, Server

STEADY = 0
LOOSE = 1
HOSTILE = 2
WAYS = ("steady", "loose", "hostile")

MOST_STEPS = 20000  # until the WebSocket is open, or has taken a piece
ENDS = ("closed", "timeout")  # the kinds of error of a WebSocket that does not open
READ_ERROR = 113  # EHOSTUNREACH: not the peer's doing


def way_of(data):
    """The way in which the case that these bytes stand for is run."""
    return crc32(data) % 3


class Unjudged:
    """A watcher of the bytes below the WebSocket that does not judge them.

    websocket_oracle has one that does.
    """

    def asked(self, answer, request):
        """The server answers an upgrade."""

    def gave(self, piece):
        """The client has read these bytes of the server."""

    def took(self, piece):
        """The client has written these bytes."""

    def opened(self):
        """The WebSocket is open, as the client sees it."""

    def read(self, piece):
        """The client has this payload of what it read."""

    def wrote(self, piece):
        """The WebSocket has taken this payload of what the client writes."""

    def refused(self):
        """The network has not taken all that was offered."""

    def failed(self, error):
        """A call of the WebSocket has raised this."""

    def closed(self):
        """The client has closed the link."""

    def quiet(self, link, settled):
        """Nothing moves. `settled`: the network takes everything."""


class Inner:
    """The link below the WebSocket, and its stream: a script, as in `drive`.

    `owner` has the state of the network.
    """

    def __init__(self, owner, server, judge, steady):
        self.owner = owner
        self.server = server
        self.judge = judge
        self.steady = steady
        self.address = None
        self.hostile = False
        self.is_open = False  # the WebSocket
        self.data = b""
        self.at = 0
        self.request = b""
        self.answered = False
        self.offered = None

    def resolve(self):
        self.address = True

    def connect(self):
        self.data = self.request = b""
        self.at = 0
        self.answered = self.is_open = False
        self.offered = None

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
        if not self.steady:
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
        n = self.room(n)
        self.offered = data[n:] or None
        if self.offered:
            self.judge.refused()
        if not n:
            return None
        data = data[:n]
        if not self.steady:
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

    def room(self, n):
        """Return how many of `n` bytes the network takes."""
        owner = self.owner
        pick = self.server.chance.pick
        if not self.is_open:
            return n if pick(4) else 1 + pick(n)
        if self.steady:
            return n if pick(4) else pick(n + 1)
        if owner.block or (owner.room and owner.full):
            owner.block = max(0, owner.block - 1)
            owner.full = False
            owner.moved += 1
            return 0
        if owner.room:
            owner.full = n > owner.room
            return min(n, owner.room)
        return n


class Below:
    """A replacement for `tls` of a WebSocket, without TLS: its frames have a mask of zeros."""

    def __init__(self, inner):
        self.inner = inner

    def link(self, host, port):
        return self.inner


class Steady(drive.Link):
    """The link of `drive`, whose bytes go through a WebSocket."""

    def __init__(self, note, server, judge, zero):
        drive.Link.__init__(self, note)
        self.judge = judge
        self.below = 0  # calls of the stream below the WebSocket
        self.inner = Inner(self, server, judge, True)
        below = {"tls": Below(self.inner)} if zero else {"link": self.inner}
        self.socket = WebSocket("broker", **below)

    def count_call(self):
        self.below += 1
        if self.below > 10 * drive.MOST_CALLS:
            raise drive.Stuck("calls without end")
        if not self.open:
            raise drive.Stuck("a closed link is touched")

    def connect(self):
        drive.Link.connect(self)
        self.socket.resolve()
        self.socket.connect()
        for _ in range(MOST_STEPS):
            if self.socket.stream():
                self.inner.is_open = True
                self.judge.opened()
                return
        raise drive.Stuck("the WebSocket does not open")

    def close(self):
        if self.open:
            self.judge.closed()
        drive.Link.close(self)
        self.socket.close()

    def give(self, data):
        drive.Link.give(self, data)
        self.inner.give(data)

    def take(self, n):
        wanted = drive.Link.take(self, n)
        into = memoryview(bytearray(n))
        have = 0
        for _ in range(MOST_STEPS):
            have += self.through(self.socket.readinto, into[have:]) or 0
            if have == n:
                break
        if bytes(into) != wanted:
            raise drive.Stuck("read other bytes than the frames have")
        self.judge.read(wanted)
        return wanted

    def carry(self, piece):
        done = 0
        for _ in range(MOST_STEPS):
            n = self.through(self.socket.write, piece, done, len(piece) - done)
            if n:
                self.judge.wrote(piece[done : done + n])
                done += n
            if done == len(piece):
                return
        raise drive.Stuck("the WebSocket does not take what is written")

    def through(self, call, *arguments):
        """Return what a call of the WebSocket returns; it has no reason to raise anything."""
        try:
            return call(*arguments)
        except Exception as e:
            raise drive.Stuck(f"the WebSocket has raised {e!r}") from e


class Loose(WebSocket):
    """A WebSocket over a script that has the calls that a driver needs of a link."""

    def __init__(self, note, server, judge, zero):
        self.inner = Inner(self, server, judge, False)
        below = {"tls": Below(self.inner)} if zero else {"link": self.inner}
        WebSocket.__init__(self, "broker", **below)
        self.note = note
        self.judge = judge
        self.now = 1000
        self.open = False
        self.gone = 0
        self.calls = 0
        self.moved = 0
        self.room = self.block = self.refused = 0
        self.full = False
        self.wire = bytearray()
        self.reports_full = False

    def ticks_ms(self):
        return self.now & 0x3FFFFFFF

    def count_call(self):
        self.calls += 1
        if self.calls > drive.MOST_CALLS:
            raise drive.Stuck("calls without end")
        if not self.open:
            raise drive.Stuck("a closed link is touched")

    def connect(self):
        if self.open:
            raise drive.Stuck("the link before is not closed")
        self.open = True
        self.gone = 0
        self.full = False
        self.wire = bytearray()
        self.note((drive.OPENED,))
        WebSocket.connect(self)

    def stream(self):
        if not WebSocket.stream(self):
            return None
        self.inner.is_open = True
        self.judge.opened()
        return self

    def close(self):
        if self.open:
            self.judge.closed()
            self.note((drive.CLOSED,))
        self.open = False
        WebSocket.close(self)

    def give(self, data):
        self.inner.give(data)

    def is_read(self):
        return self.inner.at == len(self.inner.data)

    def readinto(self, into):
        try:
            n = WebSocket.readinto(self, into)
        except OSError as e:
            self.judge.failed(e)
            raise
        if n:
            piece = bytes(into[:n])
            self.judge.read(piece)
            self.note((drive.READ, piece))
        return n

    def write(self, buf, off, n):
        if n <= 0:
            raise drive.Stuck("an empty write")
        try:
            took = WebSocket.write(self, buf, off, n)
        except OSError as e:
            self.judge.failed(e)
            raise
        if not took:
            self.refused += 1
            if self.refused > drive.MOST_REFUSED:
                raise drive.Stuck("there is no room, and it does not let go")
        else:
            piece = bytes(memoryview(buf)[off : off + took])
            self.judge.wrote(piece)
            self.wire.extend(piece)
            self.note((drive.WROTE, piece))
        if took != n and self.reports_full:
            self.note((drive.FULL,))
        return took


def driver(options, note, way, server, judge):
    """Return a driver that takes a client over WebSocket through a case.

    It is a driver for its version of MQTT, of which three methods do something more.
    """
    link = Steady if way == STEADY else Loose
    link = link(note, server, judge, server.chance.pick(2))
    made = drive.driver(options, note, link)
    plain_step, plain_dial, plain_quiet = made.step, made.dial, made.quiet

    def step(step, argument):
        link.inner.hostile = way == HOSTILE
        plain_step(step, argument)
        link.inner.hostile = False

    def dial():
        before = made.client.stats.losses
        plain_dial()
        error = made.client.error
        if made.client.stats.losses > before and error.kind not in ENDS:
            raise AssertionError("a WebSocket that does not open: " + error.kind)

    def quiet():
        plain_quiet()
        if made.up:
            judge.quiet(link, way != STEADY)

    made.step, made.dial, made.quiet = step, dial, quiet
    return made


def run(data, note, marked=None, judge=None):
    """Run a case, as `drive.run` does, over WebSocket. Returns the Server."""
    way = way_of(data)
    server = Server(Chance(crc32(data, 1)))
    drive.run(
        data, note, marked, lambda o, note: driver(o, note, way, server, judge or Unjudged())
    )
    return server
