"""Messages, requests and limits as the oracle knows them, and the decoding of packets."""

import codecs
import functools

import peer
from hostile import drive
from packets import strict
from packets.fields import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, integer, topic_name
from packets.properties import BYTE, DATA, FOUR, INTEGER, NONE, PAIR, TEXT, Id, Properties, encoded
from packets.properties import TABLE as PROPERTIES
from packets.strict import Broken, Packet

UTF8 = codecs.getincrementaldecoder("utf-8")

PUBACK, PUBREC, PUBCOMP = "PUBACK", "PUBREC", "PUBCOMP"  # what a publish waits for
BEHIND = 2  # closes on a message alone in flight after which it goes behind the others

# The blocks of cases.PROPERTY_SETS, in the order in which the client encodes them.
BLOCKS = tuple(
    encoded(each)
    for each in (
        (),
        ((Id.CONTENT_TYPE, b"t"), (Id.MESSAGE_EXPIRY, 60)),
        ((Id.CORRELATION_DATA, b"c"), (Id.RESPONSE_TOPIC, b"r"), (Id.USER_PROPERTY, (b"k", b"v"))),
        ((Id.PAYLOAD_FORMAT, 1),),
        ((Id.USER_PROPERTY, (b"k", b"v")), (Id.USER_PROPERTY, (b"k", b"w"))),
    )
)


class Outgoing:
    """A message that the application has published, with the block of its properties."""

    def __init__(
        self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int, block: bytes
    ) -> None:
        self.pid = pid
        self.topic = topic
        self.qos = qos
        self.wait: str | None = {0: None, 1: PUBACK, 2: PUBREC}[qos]
        self.done = False  # acknowledged, or at QoS 0 written out
        self.begun = False  # a byte of it was written, on whatever connection
        self.settled = 0  # the connection on which it was acknowledged
        self.again = False  # it was begun before this connection
        self.unsure = False  # if it was
        self.old = False  # it was there when a connection ended, of those that go one at a time
        self.cut = 0  # the connection on which a part of it was written last
        self.stream = 0  # the connection on which all of it was written last
        self.alias = False
        self.strikes = 0  # times that the peer may have closed the connection on it
        number = max(pid, 0).to_bytes(2, "big") if qos else b""
        self.tail = block + payload
        body = peer.text(topic) + number + self.tail
        self.new = peer.packet(0x30 | qos << 1 | retain, body)
        self.dup = peer.packet(0x38 | qos << 1 | retain, body)

    def renamed(self, raw: bytes) -> int:
        """Return the identifier if `raw` is this message as a new one, else 0."""
        at = len(self.new) - len(self.tail)
        if self.qos != 1 or self.strikes < BEHIND or len(raw) != len(self.new):
            return 0
        if raw[: at - 2] != self.new[: at - 2] or raw[at:] != self.tail:
            return 0
        return raw[at - 2] << 8 | raw[at - 1]

    def rename(self, pid: int) -> None:
        """Give it another packet identifier."""
        at = len(self.new) - len(self.tail)
        number = pid.to_bytes(2, "big")
        self.pid = pid
        self.new = self.new[: at - 2] + number + self.tail
        self.dup = self.dup[: at - 2] + number + self.tail


class Request:
    """A SUBSCRIBE of a handler's number, or an UNSUBSCRIBE (None).

    `qos` is the byte of its options, `head` its properties, if it is one of MQTT 5.
    """

    def __init__(
        self, filters: list[bytes], number: int | None, qos: int, chunks: bool = False
    ) -> None:
        self.filters = filters
        self.number = number
        self.qos = qos
        self.chunks = chunks
        self.identifier = 0
        self.head = b""
        self.is_due = True  # to be written
        self.pid = 0  # while it waits for its answer
        self.waited = 0  # ms for that, or to leave, on this connection
        self.strikes = 0  # times that the peer may have closed the connection on it
        self.granted: bytes | None = None
        self.refused = False  # the broker has refused it, and it is tried again later
        self.replaced = False  # by another to the same filters, once it was on its way
        self.asked = filters  # as they were in the packet
        self.variants = [filters]  # what they may be in it: some were given up before it was out

    def due(self, all: bool) -> None:
        """It is to be written: with all filters, or with those that the broker has not granted."""
        self.is_due = True
        self.refused = False
        self.pid = 0
        self.variants = [self.filters if all else self.variants[-1]]

    def narrow(self, gone: list[bytes]) -> None:
        """Some filters are given up."""
        left = [f for f in self.filters if f not in gone]
        if self.granted:
            self.granted = bytes(self.granted[self.filters.index(f)] for f in left)
        self.filters = left
        self.variants.append([f for f in self.variants[-1] if f in left] or left)

    def size(self) -> int:
        """The size of the packet, in bytes."""
        options = self.number is not None
        body = 2 + len(self.head) + sum(2 + len(f) + options for f in self.filters)
        return len(peer.packet(0x82, bytes(body)))

    def is_body(self, body: bytes) -> bool:
        """Return whether this may follow the packet identifier; if so, take it."""
        tail = b"" if self.number is None else bytes([self.qos])
        for filters in self.variants:
            if filters and body == self.head + b"".join(peer.text(f) + tail for f in filters):
                self.asked = filters
                return True
        return False


class Limits:
    """The limits in a CONNACK; before MQTT 5 there are none."""

    def __init__(self, said: Properties = NONE) -> None:
        self.receive_maximum: int = said.first(Id.RECEIVE_MAXIMUM, 65535)
        self.qos: int = said.first(Id.MAXIMUM_QOS, 2)
        self.retain: int = said.first(Id.RETAIN_AVAILABLE, 1)
        self.size: int = said.first(Id.MAXIMUM_PACKET_SIZE, 0)
        self.aliases: int = said.first(Id.TOPIC_ALIAS_MAXIMUM, 0)
        self.keep_alive: int | None = said.first(Id.SERVER_KEEP_ALIVE)
        self.identifiers: int = said.first(Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 1)

    def forbids(self, m: Outgoing) -> bool:
        """Return whether the broker does not accept a message."""
        too_large = self.exceeds(len(m.new))
        return m.qos > self.qos or (m.new[0] & 1 and not self.retain) or too_large

    def exceeds(self, size: int) -> bool:
        """Return whether a packet of that size is larger than the broker accepts."""
        return 0 < self.size < size


def visible(properties: Properties) -> Properties:
    """Return what a handler sees of properties: all that are allowed."""
    return Properties(
        each
        for each in properties
        if not (each.id == Id.PAYLOAD_FORMAT and each.value > 1)
        and not (each.id == Id.RESPONSE_TOPIC and (not each.value or set(each.value) & set(b"+#")))
    )


def judge_beginning(data: bytes, size: int) -> None:
    """Judge the first bytes of properties of a PUBLISH, which are `size` bytes in all.

    Raises Broken once a byte has come that cannot be right.
    """
    at = 0
    found: set[int] = set()

    def is_there() -> bool:
        if at == size:
            raise Broken("a property that is cut")
        return at < len(data)

    while at < len(data):
        kind, carriers = PROPERTIES.get(data[at], (0, ()))  # type: ignore[call-overload]
        if "PUBLISH" not in carriers:
            raise Broken(f"PUBLISH: property {data[at]:#x}")
        if data[at] == Id.TOPIC_ALIAS:
            raise Broken("a topic alias, and none was allowed", TOPIC_ALIAS_INVALID)
        if data[at] in found and data[at] not in (Id.USER_PROPERTY, Id.SUBSCRIPTION_IDENTIFIER):
            raise Broken("a property twice", PROTOCOL_ERROR)
        found.add(data[at])
        at += 1
        if kind in (BYTE, FOUR):
            at += 1 if kind == BYTE else 4
        elif kind == INTEGER:
            begun = at
            while is_there() and data[at] > 127:
                at += 1
                if at == begun + 4:
                    raise Broken("an integer of five bytes")
            at += 1
            if at <= len(data) and not any(each & 127 for each in data[begun:at]):
                raise Broken("a subscription identifier of 0", PROTOCOL_ERROR)
        for _ in range({PAIR: 2, TEXT: 1, DATA: 1}.get(kind, 0)):
            for _ in range(2):
                if not is_there():
                    return
                at += 1
            begun, at = at, at + (data[at - 2] << 8 | data[at - 1])
            if at > size:
                raise Broken("a property that is cut")
            if kind != DATA:
                try:
                    text = UTF8().decode(data[begun:at], final=at <= len(data))
                except UnicodeDecodeError:
                    raise Broken("a text that is not UTF-8") from None
                # The decoder waits for the third byte of a surrogate.
                if "\0" in text or b"\xed\xa0" <= data[begun:at][-2:] < b"\xee":
                    raise Broken("a text with U+0000, or a surrogate")
        if at > size:
            raise Broken("a property that is cut")


# Many packets are the same in many cases.
@functools.lru_cache(20000)
def from_server(first: int, body: bytes, level: int) -> Packet:
    """The packet of that first byte and body, from a server at that protocol level.

    The topic name of a message may be any bytes: see `is_name`.
    """
    return strict.packet(first, body, level, tolerant=level == 5, any_name=True)


@functools.lru_cache(20000)
def is_name(topic: bytes) -> bool:
    """Return whether a message with this topic name is delivered, not skipped."""
    try:
        topic_name(topic)
    except Broken:
        return False
    return True


@functools.lru_cache(20000)
def from_client(raw: bytes) -> Packet:
    """A packet of MQTT 5 that a client sent."""
    ((first, body),), _ = strict.split(raw)
    return strict.from_client(first, body)


@functools.lru_cache(20000)
def seen(properties: Properties) -> bytes:
    """Return what a handler sees of properties: see `drive.seen`."""
    properties = visible(properties)
    out = b""
    for i in drive.CARRIED:
        value = properties.first(i)
        out += b"%d " % i
        out += b"-" if value is None else b"%d" % value if isinstance(value, int) else value
        out += b";"
    pairs = properties.each(Id.USER_PROPERTY)
    for name in drive.USERS:
        values = [value for each, value in pairs if each == name]
        out += values[0] + b";" if values else b"-;"
    return out


def varint(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return the variable byte integer at `at`, and where it ends.

    It may have needless bytes. Returns None if it is cut, or has a fifth byte.
    """
    try:
        return integer(data, at, True)
    except Broken:
        return None


@functools.lru_cache(20000)
def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a topic filter, also of a shared subscription, matches a topic name."""
    if topic_filter.startswith(b"$share/"):
        topic_filter = topic_filter.split(b"/", 2)[2]
    return strict.matches(topic_filter, topic)
