"""A case: the options of a client, and what then happens to it, step by step.

A case has a form of bytes, in which the corpus keeps it. Any bytes are a case:

    options (2 bytes, 3 for MQTT 5), then steps until the end
    00..7F data      feed 1 to 128 bytes
    80..BF data      feed 16 to 1024 bytes, in steps of 16
    C0..FF argument  an action, by its number in ACTIONS

Runs on CPython and on MicroPython.
"""

FEED = 0  # bytes from the peer; the maximum that one read returns
NEXT = 1  # go on, on a new connection if this one has ended; see the bits below
PUBLISH = 2  # the application publishes: 2 bits QoS, 1 bit retain, topic, size of the payload
SUBSCRIBE = 3  # 4 bits: which of FILTERS, then the QoS
UNSUBSCRIBE = 4  # which of FILTERS
ROOM = 5  # a write takes at most that many bytes, and every other one none; 0: all
BLOCK = 6  # so many writes take nothing
RAISE = 7  # the so-manieth call of a handler from now on raises
REPLY = 8  # handlers publish, at QoS argument - 1; 0: they do not
PING = 9  # the application pings
TICK = 10  # so many half seconds pass
SPLIT = 11  # what is fed is read in pieces of so many bytes; 0: as it is fed
FILL = 12  # feed so many times 16 bytes of filling
SYNC = 13  # the network takes everything, until nothing moves

ACTIONS = (
    NEXT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, ROOM, BLOCK, RAISE, REPLY, PING, TICK, SPLIT, FILL, SYNC
)  # fmt: skip

# What MQTT 5 has besides; they have numbers behind the others.
PROPERTIES = 14  # 3 bits: with which of Properties to publish; No Local, Retain As Published, and
# 2 bits Retain Handling, with which to subscribe
REQUEST = 15  # which topic, size of the payload
ALIAS = 16  # publish with an alias: which one, 1 bit retain, size of the payload
AUTHENTICATE = 17  # again

ACTIONS5 = ACTIONS + (PROPERTIES, REQUEST, ALIAS, AUTHENTICATE)  # noqa: RUF005 (MicroPython)

NAMES = (
    "FEED", "NEXT", "PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "ROOM", "BLOCK", "RAISE", "REPLY",
    "PING", "TICK", "SPLIT", "FILL", "SYNC", "PROPERTIES", "REQUEST", "ALIAS", "AUTHENTICATE",
)  # fmt: skip

# The argument of NEXT
CUT = 1  # end the connection if it is still there
BREAK = 2  # with an error, and not in an orderly way
PRESENT = 4  # the CONNACK that follows says that the session is present
RAW = 8  # no CONNACK follows by itself: it has to be in the bytes

FILTERS = (
    (b"a/b",),
    (b"a/+", b"c"),
    (b"#",),
    (b"$SYS/#", b"+"),
    (b"+/+/x", b"a/#", b"/"),
    ("é/+".encode(),),
    (b"a/b", b"a/b/+"),
    (b"c",),
)
FILTERS5 = FILTERS + ((b"$share/g/a/+",), (b"$share/g/#", b"c"))  # noqa: RUF005 (MicroPython)
# With what the application publishes.
PROPERTY_SETS = (
    None,
    {"expiry": 60, "content_type": b"t"},
    {"response_topic": b"r", "correlation_data": b"c", "user": [(b"k", b"v")]},
    {"payload_format": 1},
    {"user": [(b"k", b"v"), (b"k", b"w")]},
)
REPLIES = b"reply/hostile"  # the topic of answers to requests
TOPICS = (b"a/b", b"out", "ü".encode(), b"a/b/c/d/e/f/g/h")  # of what the application publishes
SIZES = (0, 1, 5, 20, 60, 90, 130, 200)

RX_SIZES = (64, 80, 130, 512)
TX_SIZES = (160, 300, 1024, 64)
INFLIGHTS = (8, 2, 1, 20)
VERSION_5 = 0x80  # of the second byte of the options


class Options:
    """The options at the start of a case: two bytes, or three for MQTT 5."""

    def __init__(self, first, second, third=0):
        self.version = 5 if second & VERSION_5 else 3 if first & 1 else 4
        if self.version < 5:
            third = 0
        self.choices = FILTERS if self.version < 5 else FILTERS5
        self.actions = ACTIONS if self.version < 5 else ACTIONS5
        self.clean_session = bool(first & 2)
        self.rx_size = RX_SIZES[first >> 2 & 3]
        self.incoming = 3 if first & 16 else 8
        self.last_id = 65530 if first & 32 else 0
        self.fallback = not first & 64  # there is a handler of what matches no filter
        self.filters = FILTERS[:1] if first & 128 else FILTERS[:2]  # subscribed to at the start
        self.tx_size = TX_SIZES[second & 3]
        self.inflight = INFLIGHTS[second >> 2 & 3]
        self.subscriptions = 5
        self._chunks = (0, 0b10101010, 0b01010101, 0xFF)[second >> 4 & 3]
        # Of MQTT 5.
        self.user_properties = bool(first & 1)
        self.auth = bool(third & 1)
        self.client_id = b"" if third & 2 and self.clean_session else b"hostile"
        self.session_expiry = (None, 0, 3600, None)[third >> 2 & 3]
        self.maximum_packet_size = 100000 if third & 16 else None
        self.requests = (1, 2, 4, 1)[third >> 5 & 3]

    def chunks(self, number):
        """Return whether the subscription to that FILTERS entry takes messages in pieces."""
        return bool(self._chunks >> number & 1)


def decode(data):
    """The options and the steps, a list of (step, argument), that bytes stand for."""
    options = Options(*(data[i] if i < len(data) else 0 for i in range(3)))
    steps = []
    at = 3 if options.version == 5 else 2
    while at < len(data):
        c = data[at]
        at += 1
        if c < 0xC0:
            n = c + 1 if c < 0x80 else (c - 0x7F) * 16
            if data[at : at + n]:
                steps.append((FEED, data[at : at + n]))
            at += n
        else:
            argument = data[at] if at < len(data) else 0
            steps.append((options.actions[(c - 0xC0) % len(options.actions)], argument))
            at += 1
    return options, steps


def encode(first, second, steps, third=None):
    """The bytes of a case: those of its options, and its steps. `third` is that of MQTT 5."""
    options = (first, second) if third is None else (first, second | VERSION_5, third)
    return bytes(options) + encoded(steps)


def encoded(steps):
    out = bytearray()
    for step, argument in steps:
        if step == FEED:
            at = 0
            while at < len(argument):
                n = len(argument) - at
                if n <= 128:
                    out.append(n - 1)
                else:
                    n = min(n, 1024) & ~15
                    out.append(0x7F + n // 16)
                out += argument[at : at + n]
                at += n
        else:
            out.append(0xC0 + ACTIONS5.index(step))
            out.append(argument)
    return bytes(out)
