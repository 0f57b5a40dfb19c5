"""Drives a client for MQTT 5 in a case: see `drive`.

Runs on CPython and on MicroPython.
"""

from flatmq import Client
from flatmq.properties import Properties
from hostile import cases, drive

# Events besides, and what stands in them. CALL and PIECE have behind their fields what the handler
# sees of the properties; PUBLISHED the number of the properties; QUIET the stats.dropped.
REFUSED = -2  # what publish returned, for ValueError
DROPPED = "dropped"  # on_dropped was called: packet identifier, topic
ALIASED = "aliased"  # what Alias.publish returned, which of ALIASED_TOPICS, payload, retain
REPLYING = "replying"  # the client has subscribed to answers
REQUESTED = "requested"  # packet identifier, -1 for none; number, ms now, topic, payload
ANSWERED = "answered"  # the handler of a request: its number, then as CALL
LATE = "late"  # the handler of a request was called without an answer: its number, ms now
WAITING = "waiting"  # requests that still wait, at the end
ASKS = "asks"  # the next subscription: No Local, Retain As Published, Retain Handling
AUTHENTICATED = "authenticated"  # the application has authenticated again

ALIASED_TOPICS = (b"a/b", b"out")
TIMEOUT = 10  # s of a request
METHOD = b"m"  # of authentication
# The identifiers of properties that a message may carry, and the names of User Properties that are
# looked for.
CARRIED = (1, 2, 3, 8, 9, 0x0B, 0x23)
USERS = (b"k", b"", b"long")


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


class Driver5(drive.Driver):
    """A client for MQTT 5 in a case."""

    overhead = 30

    def __init__(self, options, note, link=None):
        self.properties = [None if p is None else Properties(**p) for p in cases.PROPERTY_SETS]
        self.number = 0  # of the properties with which it publishes
        self.no_local = self.as_published = self.handling = 0
        self.requests = 0
        self.waiting = []  # the numbers of requests that wait for an answer
        drive.Driver.__init__(self, options, note, link)
        self.link.reports_full = True
        self.aliases = [self.client.alias(topic) for topic in ALIASED_TOPICS]

    def new_client(self, **arguments):
        o = self.options
        return Client(
            o.client_id,
            session_expiry=o.session_expiry,
            user_properties=[(b"board", b"7")] if o.user_properties else None,
            auth=(METHOD, authenticate) if o.auth else None,
            maximum_packet_size=o.maximum_packet_size,
            response_topic=cases.REPLIES,
            requests=o.requests,
            on_dropped=self.dropped,
            **arguments,
        )

    def accepted(self, present):
        # With an Assigned Client Identifier: the client keeps the last one, and a case may have
        # another.
        said = b"\x12\0\4gave" + (b"\x15\0\1" + METHOD if self.options.auth else b"")
        return bytes((0x20, 3 + len(said), int(bool(present)), 0, len(said))) + said

    def message(self, qos, pid):
        topic = b"\0\3a/b"
        if not qos:
            return b"\x30\7" + topic + b"\0000"
        return bytes((0x30 | qos << 1, 9)) + topic + bytes((0, pid, 0)) + b"%d" % qos

    def begin(self):
        drive.Driver.begin(self)
        self.note((REPLYING,))
        self.request(b"out", b"?")
        self.answer_all()
        # What a client has from its first reconnect on it has from here on.
        self.next(cases.CUT)
        self.restore()
        self.session(0)
        self.link.give(b"")

    def end(self):
        self.number = 0
        self.no_local = self.as_published = self.handling = 0
        drive.Driver.end(self)
        for _ in range(6):
            self.note((drive.PASSED, 2500))
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
        if step == cases.PROPERTIES:
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
            if self.options.auth and self.client.connected:
                try:
                    self.client.authenticate()
                    taken = 1
                except ValueError:
                    taken = 0
                self.note((AUTHENTICATED, taken))
        else:
            drive.Driver.step(self, step, argument)

    # What the application does, and sees

    def asked(self, filters):
        shared = any(f.startswith(b"$share/") for f in filters)
        return {
            "no_local": bool(self.no_local and not shared),
            "retain_as_published": bool(self.as_published),
            "retain_handling": self.handling,
        }

    def called(self, number, m, topic, payload):
        p = seen(m.properties)
        if m.last and not m.offset:
            self.note((drive.CALL, number, topic, payload, m.qos, m.retain, m.dup, p))
        else:
            self.note((
                drive.PIECE, number, topic, payload, m.qos, m.retain, m.dup, m.offset, m.total, p
            ))  # fmt: skip

    def dropped(self, pid, topic, reason):
        self.note((DROPPED, pid, topic))

    def published(self, topic, payload, qos, retain):
        try:
            pid = self.client.publish(topic, payload, qos, retain, self.properties[self.number])
        except ValueError:
            pid = REFUSED
        pid = -1 if pid is None else pid
        self.note((drive.PUBLISHED, pid, topic, payload, qos, int(retain), self.number))

    def subscribe(self, number, qos):
        self.note((ASKS, self.no_local, self.as_published, self.handling))
        drive.Driver.subscribe(self, number, qos)

    def publish_alias(self, which, payload, retain):
        """Publish with an alias."""
        if len(payload) + 20 > self.options.tx_size:
            payload = b""
        try:
            pid = self.aliases[which].publish(payload, bool(retain))
        except ValueError:
            pid = REFUSED
        pid = -1 if pid is None else pid
        self.note((ALIASED, pid, which, payload, int(bool(retain))))

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
            self.note((ANSWERED, number, m.topic, m.payload, m.qos, m.retain, m.dup, p))
            self.link.moved += 1
            if self.raises:
                self.raises -= 1
                if not self.raises:
                    self.note((drive.RAISED,))
                    raise drive.Planned
            self.waiting.remove(number)
            self.note((drive.RETURNED,))

        return take

    def quiet(self):
        c = self.client
        s = c.stats
        self.note((
            drive.QUIET, int(c.connected), s.received, s.unrouted, s.skipped, s.strays, c.pending,
            s.dup0, s.downgraded, s.dropped,
        ))  # fmt: skip

    # Ordinary sessions

    def answer_to(self, first, body):
        kind = first >> 4
        if kind == 8:
            at = 3 + body[2]  # the properties are short
            codes = b""
            while at < len(body):
                at += 3 + (body[at] << 8 | body[at + 1])
                codes += bytes((body[at - 1] & 3,))
            return bytes((0x90, 3 + len(codes))) + body[:2] + b"\0" + codes
        if kind == 10:
            at = 3
            codes = b""
            while at < len(body):
                at += 2 + (body[at] << 8 | body[at + 1])
                codes += b"\0"
            return bytes((0xB0, 3 + len(codes))) + body[:2] + b"\0" + codes
        if kind == 15:
            return b"\xf0\6\0\4\x15\0\1" + METHOD
        if kind == 3 and body.find(cases.REPLIES) > 0 and first & 6:
            return drive.Driver.answer_to(self, first, body) + self.reply_to(body)
        return drive.Driver.answer_to(self, first, body)

    def reply_to(self, body):
        """Return the answer to a request."""
        at = body.find(cases.REPLIES) - 3
        data = body[at - 7 : at]  # the Correlation Data, a property with 4 bytes
        head = bytes((0, len(cases.REPLIES))) + cases.REPLIES + bytes((7,)) + data
        return bytes((0x30, len(head) + 3)) + head + b"yes"
