"""A driver that plays a case to a client over a scripted link and notes what it sees.

Each event goes to `note` as a tuple that begins with one of the names below. The oracle judges
them on CPython; on MicroPython they must be the same. Runs on both.
"""

import flatmq.client
from flatmq import Client
from hostile import cases

# Events, and what stands in them
OPENED = "opened"  # a connection
READ = "read"  # bytes that the client took
WROTE = "wrote"  # bytes that it wrote
CLOSED = "closed"  # the client closed the link
GONE = "gone"  # whether the peer has closed the connection; else the network has failed
CALL = "call"  # a handler: its number, topic, payload, QoS, retain, dup
PIECE = "piece"  # the same with a piece of the payload, then its offset, and that of the end
RETURNED = "returned"  # the handler
RAISED = "raised"  # the handler
PUBLISHED = "published"  # what publish returned (-1 for None), topic, payload, QoS, retain
SUBSCRIBED = "subscribed"  # whether it was accepted, number of the filters, QoS
UNSUBSCRIBED = "unsubscribed"  # whether it was accepted, the filters with a space in between
PINGED = "pinged"
PASSED = "passed"  # ms
FULL = "full"  # the network has not taken all that it was offered: see `reports_full`
LOST = "lost"  # the kind of the error, its code, its detail
QUIET = "quiet"  # nothing moves: online, received, unrouted, skipped, strays, pending, dup0,
# downgraded
GRANTED = "granted"  # number of the filters, and what the broker granted

FALLBACK = 99  # the number of the handler of what matches no filter

MOST_CALLS = 50000  # of the stream, in one case
MOST_REFUSED = 3  # writes that take nothing, in one poll
MOST_POLLS = 3000  # until nothing moves
SOON = 25  # ms after which a request is tried again that found no room


class Stuck(BaseException):
    """The client goes on and on, or touches a link that it has closed."""


class Planned(Exception):
    """The exception of a handler that is to raise."""


class Link:
    """A link, its stream and the clock in one."""

    def __init__(self, note):
        self.note = note
        self.address = None
        self.now = 1000
        self.open = False
        self.gone = 0  # 1: end of file, 2: an error
        self.calls = 0
        self.moved = 0  # grows with whatever happens
        self.data = b""
        self.at = 0
        self.room = 0
        self.block = 0
        self.full = False  # the last write took less than it was offered
        self.refused = 0  # writes that took nothing, in one poll
        self.wire = bytearray()  # what was written on this connection, for the script's broker
        self.reports_full = False

    def ticks_ms(self):
        return self.now & 0x3FFFFFFF

    def resolve(self):
        self.address = True

    def connect(self):
        if self.open:
            raise Stuck("the link before is not closed")
        self.open = True
        self.gone = 0
        self.data = b""
        self.at = 0
        self.full = False
        self.wire = bytearray()
        self.note((OPENED,))

    def stream(self):
        return self

    def wait(self, ms, out):
        raise Stuck("poll(0) waits")

    def close(self):
        if self.open:
            self.note((CLOSED,))
        self.open = False

    # What a driver calls

    def give(self, data):
        """Have the next reads give these bytes."""
        self.data = data
        self.at = 0

    def is_read(self):
        """Return whether all that was given has been read."""
        return self.at == len(self.data)

    # How the bytes travel: a link that has something in between replaces these two

    def take(self, n):
        """Return the next `n` bytes of what was given."""
        return self.data[self.at : self.at + n]

    def carry(self, piece):
        """Take to the peer what the client has written."""

    def _call(self):
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Stuck("calls without end")
        if not self.open:
            raise Stuck("a closed link is touched")

    def readinto(self, into):
        self._call()
        if self.gone == 2:
            raise OSError(113, "read")  # EHOSTUNREACH: not the peer's doing
        n = min(len(self.data) - self.at, len(into))
        if not n:
            return 0 if self.gone else None
        piece = self.take(n)
        into[:n] = piece
        self.at += n
        self.moved += n
        self.note((READ, piece))
        return n

    def write(self, buf, off, n):
        self._call()
        if n <= 0:
            raise Stuck("an empty write")
        if self.gone == 2:
            raise OSError(113, "write")
        if self.block or (self.room and self.full):
            self.block = max(0, self.block - 1)
            self.full = False
            self.moved += 1
            self.refused += 1
            if self.refused > MOST_REFUSED:
                raise Stuck("there is no room, and it does not let go")
            if self.reports_full:
                self.note((FULL,))
            return None
        offered = n
        if self.room:
            self.full = n > self.room
            n = min(n, self.room)
        piece = bytes(memoryview(buf)[off : off + n])
        self.carry(piece)
        self.moved += n
        self.wire.extend(piece)
        self.note((WROTE, piece))
        if n != offered and self.reports_full:
            self.note((FULL,))
        return n


class Dice:
    """A replacement for chance."""

    def __init__(self, last_id):
        self._last_id = last_id

    def getrandbits(self, bits):
        return self._last_id if bits == 15 else 0


class Driver:
    """A client in a case."""

    overhead = 9  # maximum bytes of a PUBLISH beside topic name and payload

    def __init__(self, options, note, link=None):
        self.options = options
        self.note = note
        self.raises = 0
        self.reply = -1
        self.split = 0
        self.up = False  # the client has a connection
        self.answering = False
        self.subscriptions = [None] * len(options.choices)
        self.handlers = [self._handler(i) for i in range(len(options.choices))]
        self.link = link or Link(note)
        flatmq.client.random = Dice(options.last_id)
        flatmq.client.ticks_ms = self.link.ticks_ms
        self.client = self.new_client(
            link=self.link,
            version=options.version,
            clean_session=options.clean_session,
            tx_size=options.tx_size,
            rx_size=options.rx_size,
            inflight=options.inflight,
            subscriptions=options.subscriptions,
            incoming=options.incoming,
            give_up=0,
            on_message=self._handler(FALLBACK) if options.fallback else None,
        )

    # What MQTT 5 has otherwise

    def new_client(self, **arguments):
        """Return the client."""
        return Client(b"hostile", **arguments)

    def accepted(self, present):
        """Return a CONNACK."""
        return b"\x20\2\1\0" if present else b"\x20\2\0\0"

    def message(self, qos, pid):
        """Return a PUBLISH at that QoS."""
        topic = b"\0\3a/b"
        if not qos:
            return b"\x30\6" + topic + b"0"
        return bytes((0x30 | qos << 1, 8)) + topic + bytes((0, pid)) + b"%d" % qos

    def asked(self, filters):
        """Return with which arguments to subscribe besides."""
        return {}

    def called(self, number, m, topic, payload):
        """Report the call of a handler."""
        if m.last and not m.offset:
            self.note((CALL, number, topic, payload, m.qos, m.retain, m.dup))
        else:
            self.note((PIECE, number, topic, payload, m.qos, m.retain, m.dup, m.offset, m.total))

    def begin(self):
        """An ordinary session."""
        for filters in self.options.filters:
            self.subscribe(cases.FILTERS.index(filters), 1)
        self.client.start()
        self.session(0)

    def end(self):
        """An ordinary session again, whatever came before."""
        self.link.room = self.link.block = self.raises = 0
        self.reply = -1
        self.split = 0
        self.next(cases.CUT)
        for pid in list(self.client.received):  # where the session is kept, they are, too
            if pid:
                self.piece(bytes((0x62, 2, pid >> 8, pid & 255)))
        self.restore()
        self.session(1)

    def step(self, step, argument):
        """Do one step of a case.

        What is fed after the end of a connection is passed over, up to the next NEXT.
        """
        link = self.link
        if not self.up and step in (cases.FEED, cases.FILL):
            return
        if step == cases.FEED:
            self.feed(argument)
        elif step == cases.NEXT:
            self.next(argument)
        elif step == cases.PUBLISH:
            self.caught_up()
            size = cases.SIZES[argument >> 5]
            self.publish(cases.TOPICS[argument >> 3 & 3], b"p" * size, argument & 3, argument & 4)
        elif step == cases.SUBSCRIBE:
            self.caught_up()
            self.subscribe((argument & 15) % len(self.handlers), (argument >> 4) % 3)
        elif step == cases.UNSUBSCRIBE:
            self.caught_up()
            filters = self.options.choices[argument % len(self.handlers)]
            self.forget(filters[: 1 + (argument >> 4) % len(filters)])
        elif step == cases.ROOM:
            link.room = argument
        elif step == cases.BLOCK:
            link.block = argument & 31
        elif step == cases.RAISE:
            self.raises = argument & 15
        elif step == cases.REPLY:
            self.reply = argument % 4 - 1
        elif step == cases.PING:
            self.note((PINGED,))
            self.client.ping()
        elif step == cases.TICK:
            self.pass_time(argument * 500)
        elif step == cases.SPLIT:
            self.split = argument
        elif step == cases.FILL:
            self.feed(b"x" * (argument * 16))
        elif step == cases.SYNC:
            self.sync()

    # The client's surroundings

    def poll(self):
        """One poll; whether something moved."""
        before = self.link.moved
        self.link.refused = 0
        try:
            moved = self.client.poll()
        except Planned:
            moved = True
        self.look()
        return moved or self.link.moved != before

    def look(self):
        """Report whether the connection has ended."""
        if self.up and self.client.state not in ("greeting", "online"):
            self.up = False
            e = self.client.error
            # What an interpreter says of its own errors is not the same everywhere.
            detail = e.detail if e.kind in ("protocol", "resource") else ""
            self.note((LOST, e.kind, e.code, detail))

    def sync(self):
        """Have the network take everything, until nothing moves."""
        link = self.link
        room = link.room
        link.room = link.block = 0
        late = 0
        for _ in range(MOST_POLLS):
            if not self.up:
                break
            if not self.poll():
                if late == 3 or not (self.client.router and self.client.router.waiting):
                    break
                late += 1
                self.note((PASSED, SOON))
                link.now += SOON
        else:
            raise Stuck("polls without end")
        link.room = room
        self.quiet()

    def quiet(self):
        """Report what can be seen when nothing moves."""
        c = self.client
        s = c.stats
        self.note(
            (
                QUIET,
                int(c.connected),
                s.received,
                s.unrouted,
                s.skipped,
                s.strays,
                c.pending,
                s.dup0,
                s.downgraded,
            )
        )

    def caught_up(self):
        """Go on only when the client is done with what it has read.

        What the application does now then comes after it for the oracle, too.
        """
        if self.poll():
            self.sync()

    def feed(self, data):
        """Give these bytes, in pieces, as long as the connection lasts."""
        n = min(self.split or len(data), self.options.rx_size) or 1
        for at in range(0, len(data), n):
            self.piece(data[at : at + n])
            if not self.up:
                return

    def piece(self, data):
        """Give these bytes to one read."""
        # With CONNACK requests get identifiers: what answers them must not be in the same read.
        while self.up and self.client.state == "greeting" and len(data) > 1:
            first = data[:1]
            data = data[1:]
            self.read(first)
        self.read(data)

    def read(self, data):
        """Give these bytes to one read, whatever they are."""
        link = self.link
        if self.asking() and not self.answering:
            self.sync()
            if self.up and self.asking():  # it waits behind what must be acknowledged first
                self.answer_all()
        if not self.up:
            return
        link.give(data)
        for _ in range(3):
            self.poll()
            if link.is_read() or not self.up:
                return
        self.sync()  # it waits for room

    def asking(self):
        """Return whether the identifier of a request may not be out yet."""
        c = self.client
        return c.queued and c.connected and c.router and c.router.requests

    def pass_time(self, ms):
        """Time passes, in steps that are short against any deadline."""
        self.caught_up()
        while ms > 0:
            step = min(ms, 2500)
            ms -= step
            self.note((PASSED, step))
            self.link.now += step
            self.poll()

    def next(self, how):
        """Go on with a connection: the one that is there, or another one."""
        link = self.link
        if self.up:
            self.sync()
        if self.up and how & cases.CUT:
            link.gone = 2 if how & cases.BREAK else 1
            self.note((GONE, int(not how & cases.BREAK)))
            self.poll()
        if not self.up:
            self.connect(how)

    def connect(self, how):
        """Poll until CONNECT is out, and answer it unless the case does."""
        self.dial()
        self.up = True
        if not how & cases.RAW:
            present = how & cases.PRESENT and not self.options.clean_session
            give = self.piece if self.split else self.read  # byte by byte, or all of it
            give(self.accepted(present))

    def dial(self):
        """Poll until CONNECT is out."""
        client = self.client
        for _ in range(MOST_POLLS):
            if client.state == "greeting":
                break
            self.link.now += 1000
            self.link.refused = 0
            client.poll()
        else:
            raise Stuck("no connection is made: " + client.state)

    # The application

    def _handler(self, number):
        def handler(m):
            topic = m.topic
            payload = m.payload
            n = len(payload)
            self.called(number, m, topic, payload)
            self.link.moved += 1
            if not (
                len(m) == n
                and m.last == (m.offset + n == m.total)
                and m.is_topic(topic)
                and m.is_payload(payload)
                and not m.is_topic(topic + b"x")
                and (not n or (m[0] == payload[0] and m[n - 1] == payload[n - 1]))
            ):
                raise AssertionError("the message does not agree with itself")
            if self.raises:
                self.raises -= 1
                if not self.raises:
                    self.note((RAISED,))
                    raise Planned
            if self.reply >= 0:
                self.publish(b"reply", b"to you", self.reply)
            self.note((RETURNED,))

        return handler

    def publish(self, topic, payload, qos, retain=0):
        """Publish, if it can be at all."""
        qos %= 3
        if len(topic) + len(payload) + self.overhead > self.options.tx_size:
            payload = b""
        self.published(topic, payload, qos, bool(retain))

    def published(self, topic, payload, qos, retain):
        """Publish, and report what came of it."""
        pid = self.client.publish(topic, payload, qos, retain)
        self.note((PUBLISHED, -1 if pid is None else pid, topic, payload, qos, int(retain)))

    def subscribe(self, number, qos):
        """Subscribe to one of FILTERS."""
        filters = list(self.options.choices[number])
        try:
            self.subscriptions[number] = self.client.subscribe(
                filters,
                self.handlers[number],
                qos,
                self.options.chunks(number),
                **self.asked(filters),
            )
            done = 1
        except ValueError:
            done = 0
        self.note((SUBSCRIBED, done, number, qos))

    def forget(self, filters):
        """Unsubscribe from filters."""
        try:
            self.client.unsubscribe(list(filters))
            done = 1
        except ValueError:
            done = 0
        self.note((UNSUBSCRIBED, done, b" ".join(filters)))
        return done

    # Ordinary sessions

    def restore(self):
        """Have the client subscribed to what it was at first, and to nothing else."""
        self.answer_all()
        for i in range(len(self.subscriptions)):
            if self.subscriptions[i]:
                self.forget(self.options.choices[i])
                self.answer_all()
        self.subscriptions = [None] * len(self.handlers)
        for filters in self.options.filters:
            self.subscribe(cases.FILTERS.index(filters), 1)

    def session(self, number):
        """Messages of every QoS in both directions, and everything is answered."""
        client = self.client
        if not self.up:
            self.connect(0)
        before = client.stats.received
        pid = 101 + number
        for data in (
            self.message(0, 0),
            self.message(1, pid),
            self.message(2, pid),
            b"\x62\2" + bytes((0, pid)),
            b"\xd0\0",
        ):
            self.piece(data)
        self.answer_all()
        for qos in (0, 1, 2):
            self.publish(b"out", b"%d" % qos, qos)
            self.answer_all()
        for i in range(len(self.subscriptions)):
            s = self.subscriptions[i]
            if s and self.options.choices[i] in self.options.filters:
                self.note((GRANTED, i, s.granted))
        if not client.connected or client.pending or client.stats.received != before + 3:
            raise AssertionError("an ordinary session does not work")
        self.link.wire = bytearray()
        self.link.give(b"")

    def answer_all(self):
        """Be a broker that answers whatever is written, until nothing is."""
        before = self.answering
        self.answering = True
        self.sync()
        at = 0
        while self.up and at < len(self.link.wire):
            wire = self.link.wire
            first = wire[at]
            length = wire[at + 1]
            body = at + 2
            if length > 127:
                length += (wire[at + 2] - 1) << 7  # none of these is longer than 16383
                body += 1
            at = body + length
            answer = self.answer_to(first, bytes(wire[body:at]))
            if answer:
                self.piece(answer)
                self.sync()
        self.link.wire = bytearray()
        self.answering = before

    def answer_to(self, first, body):
        """Return what a broker sends in response to a packet."""
        kind = first >> 4
        if kind == 3 and first & 6:
            n = 2 + (body[0] << 8 | body[1])
            return (b"\x40\2" if first & 2 else b"\x50\2") + body[n : n + 2]
        if kind == 6:
            return b"\x70\2" + body[:2]
        if kind == 8:
            codes = b""
            at = 2
            while at < len(body):
                at += 3 + (body[at] << 8 | body[at + 1])
                codes += body[at - 1 : at]
            return bytes((0x90, 2 + len(codes))) + body[:2] + codes
        if kind == 10:
            return b"\xb0\2" + body[:2]
        if kind == 12:
            return b"\xd0\0"
        return b""


def _nothing(event):
    pass


def driver(options, note, link=None):
    """Return a driver for the version of MQTT in the options."""
    if options.version < 5:
        return Driver(options, note, link)
    from hostile.drive5 import Driver5

    return Driver5(options, note, link)


def run(data, note, marked=None, make=driver):
    """Run the case that these bytes stand for, between two ordinary sessions.

    `make(options, note)` returns the Driver.

    Raises what the client raises, and Stuck. `marked` is called with the client after the
    first session and after the last one, when it should hold just as much, and returns whether
    it does; if not, it is called again after another session, of which nothing is reported.
    """
    before = flatmq.client.random, flatmq.client.ticks_ms
    try:
        options, steps = cases.decode(data)
        driver = make(options, note)
        driver.begin()
        if marked:
            marked(driver.client)
        for step, argument in steps:
            driver.step(step, argument)
        driver.end()
        for _ in range(5):
            if not marked or marked(driver.client):
                break
            driver.note = driver.link.note = _nothing
            driver.session(1)
    finally:
        flatmq.client.random, flatmq.client.ticks_ms = before
