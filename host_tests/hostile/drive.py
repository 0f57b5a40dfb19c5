"""A driver that plays a case to a client over a scripted link and notes what it sees.

Each event goes to `note` as a tuple that begins with one of the names below. The oracle judges
them on CPython; on MicroPython they must be the same. Runs on both.
"""

import random

import flatmq.port
from flatmq import Client
from flatmq.properties import Properties
from hostile import cases

# Events, and what stands in them
OPENED = "opened"  # a connection
READ = "read"  # bytes that the client took
WROTE = "wrote"  # bytes that it wrote
CLOSED = "closed"  # the client closed the link
GONE = "gone"  # whether the peer has closed the connection; else the network has failed
CALL = "call"  # a handler: its number, topic, payload or a piece of it, QoS, retain, dup, what can
# be seen of the properties, the offset of the piece, and that of the end
RETURNED = "returned"  # the handler
RAISED = "raised"  # the handler
PUBLISHED = "published"  # what publish returned (see `returned`), topic, payload, QoS, retain,
# number of the properties
SUBSCRIBED = "subscribed"  # whether it was accepted, number of the filters, QoS, and whether the
# SUBSCRIBE of the one that it replaces is on its way
UNSUBSCRIBED = "unsubscribed"  # whether it was accepted, the filters with a space in between
PINGED = "pinged"
PASSED = "passed"  # ms
FULL = "full"  # the network has not taken all that it was offered
LOST = "lost"  # the kind of the error, its code, its detail
QUIET = "quiet"  # nothing moves: online, and COUNTED
GRANTED = "granted"  # number of the filters, and what the broker granted

# Of MQTT 5
DROPPED = "dropped"  # on_dropped was called: packet identifier, topic
ALIASED = "aliased"  # what Alias.publish returned, which of ALIASED_TOPICS, payload, retain
REPLYING = "replying"  # the client has subscribed to answers
REQUESTED = "requested"  # packet identifier, -1 for none; number, ms now, topic, payload
ANSWERED = "answered"  # the handler of a request: its number, then as CALL
LATE = "late"  # the handler of a request was called without an answer: its number, ms now
WAITING = "waiting"  # requests that still wait, at the end
ASKS = "asks"  # the next subscription: No Local, Retain As Published, Retain Handling
AUTHENTICATED = "authenticated"  # the application has authenticated again

COUNTED = ("received", "unrouted", "skipped", "strays", "dup0", "downgraded", "dropped", "pending")

FALLBACK = 99  # the number of the handler of what matches no filter
REFUSED = -2  # what publish returned, for ValueError

ALIASED_TOPICS = (b"a/b", b"out")
TIMEOUT = 10  # s of a request
METHOD = b"m"  # of authentication
# The identifiers of properties that a message may carry, and the names of User Properties that are
# looked for.
CARRIED = (1, 2, 3, 8, 9, 0x0B, 0x23)
USERS = (b"k", b"", b"long")

# Those of a client that a case decides.
OPTIONS = (
    "version", "clean_session", "tx_size", "rx_size", "inflight", "subscriptions", "incoming"
)  # fmt: skip
OPTIONS_5 = OPTIONS + ("session_expiry", "maximum_packet_size", "requests")  # noqa: RUF005 (MicroPython)

# The modules that use chance.
BY_CHANCE = ("flatmq.setup", "flatmq.dial", "flatmq.v5.replies")

MOST_CALLS = 50000  # of the stream, in one case
MOST_REFUSED = 3  # writes that take nothing, in one poll
MOST_POLLS = 3000  # until nothing moves


class Stuck(BaseException):
    """The client goes on and on, or touches a link that it has closed."""


class Planned(Exception):
    """The exception of a handler that is to raise."""


def seen(p):
    """Return what can be seen of properties, as bytes."""
    out = b""
    for i in CARRIED:
        value = p.get(i)
        if isinstance(value, int):
            value = b"%d" % value
        out += b"%d " % i + (b"-" if value is None else value) + b";"
        is_bytes = isinstance(value, bytes) and i in (3, 8, 9)
        if is_bytes and (not p.is_value(i, value) or p.is_value(i, value + b"x")):
            raise AssertionError("the properties do not agree with themselves")
    for name in USERS:
        value = p.user(name)
        out += b"-;" if value is None else value + b";"
        if value is not None and not p.is_user(name, value):
            raise AssertionError("the user properties do not agree with themselves")
    return out


def authenticate(data):
    """Return what the client answers to the data of an AUTH packet, None for the first."""
    return b"first" if data is None else b"re:" + data[:10]


def returned(call, *arguments):
    """Return the packet identifier that a call returns, -1 for None, REFUSED for ValueError."""
    try:
        pid = call(*arguments)
    except ValueError:
        return REFUSED
    return -1 if pid is None else pid


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

    def count_call(self):
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Stuck("calls without end")
        if not self.open:
            raise Stuck("a closed link is touched")

    def readinto(self, into):
        self.count_call()
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
        self.count_call()
        if n <= 0:
            raise Stuck("an empty write")
        if self.gone == 2:
            raise OSError(113, "write")
        took = self.room_for(n)
        if took:
            piece = bytes(memoryview(buf)[off : off + took])
            self.carry(piece)
            self.moved += took
        return self.taken(buf, off, n, took)

    def room_for(self, n):
        """Return how many of `n` bytes the network takes."""
        if self.block or (self.room and self.full):
            self.block = max(0, self.block - 1)
            self.full = False
            self.moved += 1
            return 0
        if self.room:
            self.full = n > self.room
            n = min(n, self.room)
        return n

    def taken(self, buf, off, n, took):
        """Report that of `n` bytes so many were taken. Returns what a write does."""
        if took:
            piece = bytes(memoryview(buf)[off : off + took])
            self.wire.extend(piece)
            self.note((WROTE, piece))
        else:
            self.refused += 1
            if self.refused > MOST_REFUSED:
                raise Stuck("there is no room, and it does not let go")
        if took != n:
            self.note((FULL,))
        return took or None


class Dice:
    """A replacement for chance."""

    def __init__(self, last_id):
        self._last_id = last_id

    def getrandbits(self, bits):
        return self._last_id if bits == 15 else 0


def play(chance, ticks_ms):
    """Have a client use these for chance and the clock.

    A board lets go of some modules and loads them again, but not between here and their use.
    """
    for name in BY_CHANCE:
        __import__(name, None, None, ("random",)).random = chance
    flatmq.port.ticks_ms = ticks_ms


class Driver:
    """A client in a case."""

    def __init__(self, options, note, link=None):
        self.options = o = options
        self.note = note
        self.v5 = o.version == 5
        self.overhead = 30 if self.v5 else 9  # maximum bytes of a PUBLISH beside topic and payload
        self.raises = 0
        self.reply = -1
        self.split = 0
        self.up = False  # the client has a connection
        self.answering = False
        self.subscriptions = [None] * len(o.choices)
        self.handlers = [self._handler(i) for i in range(len(o.choices))]
        self.ordinary()
        self.requests = 0
        self.waiting = []  # the numbers of requests that wait for an answer
        self.link = link or Link(note)
        play(Dice(o.last_id), self.link.ticks_ms)
        more = {}
        if self.v5:
            more["user_properties"] = [(b"board", b"7")] if o.user_properties else None
            more["auth"] = (METHOD, authenticate) if o.auth else None
            more["response_topic"] = cases.REPLIES
        self.client = Client(
            o.client_id,
            link=self.link,
            give_up=0,
            quiet=True,
            on_message=self._handler(FALLBACK) if o.fallback else None,
            on_dropped=self.dropped,
            **{name: getattr(o, name) for name in (OPTIONS_5 if self.v5 else OPTIONS)},
            **more,
        )
        if self.v5:
            self.properties = [None if p is None else Properties(**p) for p in cases.PROPERTY_SETS]
            self.aliases = [self.client.alias(topic) for topic in ALIASED_TOPICS]

    def ordinary(self):
        """Publish and subscribe without anything special."""
        self.number = 0  # of the properties with which it publishes
        self.no_local = self.as_published = self.handling = 0

    # What a broker sends

    def accepted(self, present):
        """Return a CONNACK, in MQTT 5 with an identifier for a client that has none."""
        if not self.v5:
            return b"\x20\2\1\0" if present else b"\x20\2\0\0"
        said = b"\x15\0\1" + METHOD if self.options.auth else b""
        if not self.options.client_id and self.client.server.client_id is None:
            said += b"\x12\0\4gave"
        return bytes((0x20, 3 + len(said), int(bool(present)), 0, len(said))) + said

    def message(self, qos, pid):
        body = b"\0\3a/b" + (bytes((0, pid)) if qos else b"") + bytes(int(self.v5)) + b"%d" % qos
        return bytes((0x30 | qos << 1, len(body))) + body

    def begin(self):
        """An ordinary session."""
        for filters in self.options.filters:
            self.subscribe(cases.FILTERS.index(filters), 1)
        self.client.start()
        self.session(0)
        if self.v5:
            self.note((REPLYING,))
            self.request(b"out", b"?")
            self.answer_all()
            # What a client has from its first reconnect on it has from here on.
            self.next(cases.CUT)
            self.restore()
            self.session(0)

    def end(self):
        """An ordinary session again, whatever came before."""
        self.ordinary()
        self.link.room = self.link.block = self.raises = 0
        self.reply = -1
        self.split = 0
        self.next(cases.CUT)
        for pid in list(self.client.received):  # where the session is kept, they are, too
            if pid:
                self.piece(bytes((0x62, 2, pid >> 8, pid & 255)))
        self.restore()
        self.session(1)
        if self.v5:
            self.end_requests()

    def end_requests(self):
        """The requests that still wait are given up in time, and then another one is answered."""
        for _ in range(6):
            self.note((PASSED, 2500))
            self.link.now += 2500
            self.poll()
            self.answer_all()
        self.note((WAITING, len(self.waiting)))
        if self.waiting:
            raise AssertionError("a request waits without end")
        self.request(b"out", b"?")
        self.answer_all()
        self.link.give(b"")

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
        elif step == cases.PROPERTIES:
            self.number = (argument & 7) % len(self.properties)
            self.no_local = argument >> 3 & 1
            self.as_published = argument >> 4 & 1
            self.handling = (argument >> 5 & 3) % 3
        elif step == cases.REQUEST:
            self.caught_up()
            self.request(cases.TOPICS[argument & 1], b"r" * (argument >> 4))
        elif step == cases.ALIAS:
            self.caught_up()
            self.publish_alias(argument & 1, b"p" * cases.SIZES[argument >> 5], argument & 2)
        elif step == cases.AUTHENTICATE:
            self.caught_up()
            self.authenticate()

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
        for _ in range(MOST_POLLS):
            if not self.up:
                break
            if not self.poll():
                break
        else:
            raise Stuck("polls without end")
        link.room = room
        self.quiet()

    def quiet(self):
        """Report what can be seen when nothing moves."""
        c = self.client
        counts = [getattr(c.stats, name) for name in COUNTED[:-1]]
        self.note((QUIET, int(c.connected)) + tuple(counts) + (c.pending,))  # noqa: RUF005 (MicroPython)

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
        if self.about_to_ask():
            self.sync()
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

    def about_to_ask(self):
        """Return whether what waited for PINGRESP gets its identifier at the next poll."""
        c = self.client
        waiting = [r for r in c.requests if not (r.id or r.pause)]
        return c.connected and c.unsure != 1 and bool(waiting)

    def asking(self):
        """Return whether the identifier of a request may not be out yet."""
        c = self.client
        return c.connected and c.acks and c.requests

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
            p = seen(m.properties) if self.v5 else b""
            self.note((CALL, number, topic, payload, m.qos, m.retain, m.dup, p, m.offset, m.total))
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
            self.may_raise()
            if self.reply >= 0:
                self.publish(b"reply", b"to you", self.reply)
            self.note((RETURNED,))

        return handler

    def may_raise(self):
        """Raise if this is the call of a handler that is to."""
        if self.raises:
            self.raises -= 1
            if not self.raises:
                self.note((RAISED,))
                raise Planned

    def dropped(self, pid, topic, reason):
        self.note((DROPPED, pid, topic))

    def publish(self, topic, payload, qos, retain=0):
        """Publish, if it can be at all."""
        qos %= 3
        if len(topic) + len(payload) + self.overhead > self.options.tx_size:
            payload = b""
        retain = bool(retain)
        more = (self.properties[self.number],) if self.v5 else ()
        pid = returned(self.client.publish, topic, payload, qos, retain, *more)
        self.note((PUBLISHED, pid, topic, payload, qos, int(retain), self.number))

    def publish_alias(self, which, payload, retain):
        if len(payload) + 20 > self.options.tx_size:
            payload = b""
        pid = returned(self.aliases[which].publish, payload, bool(retain))
        self.note((ALIASED, pid, which, payload, int(bool(retain))))

    def subscribe(self, number, qos):
        filters = list(self.options.choices[number])
        more = {}
        if self.v5:
            self.note((ASKS, self.no_local, self.as_published, self.handling))
            shared = any(f.startswith(b"$share/") for f in filters)
            more["no_local"] = bool(self.no_local and not shared)
            more["retain_as_published"] = bool(self.as_published)
            more["retain_handling"] = self.handling
        sent = 0
        for old in self.client.subscriptions:
            if old.filters == filters and old.id and old in self.client.requests:
                sent = 1
        try:
            self.subscriptions[number] = self.client.subscribe(
                filters, self.handlers[number], qos, self.options.chunks(number), **more
            )
            done = 1
        except ValueError:
            done = 0
        self.note((SUBSCRIBED, done, number, qos, sent))

    def forget(self, filters):
        try:
            self.client.unsubscribe(list(filters))
            done = 1
        except ValueError:
            done = 0
        self.note((UNSUBSCRIBED, done, b" ".join(filters)))
        return done

    def authenticate(self):
        """Authenticate again, where there is authentication."""
        if self.options.auth and self.client.connected:
            try:
                self.client.authenticate()
                taken = 1
            except ValueError:
                taken = 0
            self.note((AUTHENTICATED, taken))

    def request(self, topic, payload):
        """Ask for an answer."""
        self.requests += 1
        number = self.requests
        now = self.link.now
        try:
            done = self.client.request(topic, payload, self._taker(number), TIMEOUT)
        except ValueError:
            done = None
        pid = REFUSED if done is None else self.client.last_id if done else -1
        if done:
            self.waiting.append(number)
        self.note((REQUESTED, pid, number, now, topic, payload))

    def _taker(self, number):
        def take(m):
            if m is None:
                self.note((LATE, number, self.link.now))
                self.waiting.remove(number)
                return
            p = seen(m.properties)
            n = len(m.payload)
            self.note((ANSWERED, number, m.topic, m.payload, m.qos, m.retain, m.dup, p, 0, n))
            self.link.moved += 1
            self.may_raise()
            self.waiting.remove(number)
            self.note((RETURNED,))

        return take

    # Ordinary sessions

    def restore(self):
        """Have the client subscribed to what it was at first, and to nothing else."""
        self.answer_all()
        self.await_requests()
        for i in range(len(self.subscriptions)):
            if self.subscriptions[i]:
                self.forget(self.options.choices[i])
                self.answer_all()
        self.subscriptions = [None] * len(self.handlers)
        for filters in self.options.filters:
            self.subscribe(cases.FILTERS.index(filters), 1)

    def await_requests(self):
        """Let time pass while requests wait on which the peer has closed the connection."""
        for _ in range(MOST_POLLS):
            if not self.up or not self.client.requests:
                return
            self.note((PASSED, 2500))
            self.link.now += 2500
            self.answer_all()
        raise Stuck("a request waits without end")

    def session(self, number):
        """Messages of every QoS in both directions, and everything is answered."""
        client = self.client
        if not self.up:
            self.connect(0)
            self.answer_all()
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
            ack = (b"\x40\2" if first & 2 else b"\x50\2") + body[n : n + 2]
            return ack + self.reply_to(body)
        if kind == 6:
            return b"\x70\2" + body[:2]
        if kind in (8, 10):
            at = 3 + body[2] if self.v5 else 2  # the properties are short
            codes = b""
            while at < len(body):
                at += 2 + (body[at] << 8 | body[at + 1])
                if kind == 8:
                    codes += bytes((body[at] & 3,))
                    at += 1
                elif self.v5:
                    codes += b"\0"
            codes = bytes(int(self.v5)) + codes
            return bytes((0x90 if kind == 8 else 0xB0, 2 + len(codes))) + body[:2] + codes
        if kind == 12:
            return b"\xd0\0"
        if kind == 15:
            return b"\xf0\6\0\4\x15\0\1" + METHOD
        return b""

    def reply_to(self, body):
        """Return the answer to a PUBLISH that is a request; else nothing."""
        at = body.find(cases.REPLIES) - 3 if self.v5 else 0
        if at <= 0:
            return b""
        data = body[at - 7 : at]  # the Correlation Data, a property with 4 bytes
        head = bytes((0, len(cases.REPLIES))) + cases.REPLIES + bytes((7,)) + data
        return bytes((0x30, len(head) + 3)) + head + b"yes"


def _nothing(event):
    pass


def run(data, note, marked=None, make=Driver):
    """Run the case that these bytes stand for, between two ordinary sessions.

    `make(options, note)` returns the Driver.

    Raises what the client raises, and Stuck. `marked` is called with the client after the
    first session and after the last one, when it should hold just as much, and returns whether
    it does; if not, it is called again after another session, of which nothing is reported.
    """
    before = flatmq.port.ticks_ms
    options, steps = cases.decode(data)
    try:
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
        play(random, before)
