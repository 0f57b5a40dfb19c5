"""The rules for what ends a connection and what must not, each with bytes and the outcome.

`check` runs one of them against a client, with the bytes cut in a certain way. On MicroPython this
file runs all of them: `rules.py`. The last line has their number.
"""

import flatmq.client
from flatmq import Client
from hostile import drive

TOPIC = b"\0\1t"
MESSAGE = b"\x30\x05\0\1tmm"  # an ordinary message, and what a handler gets of it
GOT = (b"t", b"mm", 0, 0, 0)
RULES = {}


class Rule:
    """A rule: the bytes `data` come to a client that is online and has done what `given` says.

    Where `given` is "greeting", the client awaits CONNACK.

    `ends` is the kind of error that ends the connection, None when it goes on. `gets` is what the
    handlers get, as topic, payload, QoS, retain and dup; `says` what the client writes.
    """

    def __init__(self, data, ends=None, gets=(), says=b"", given="online", **options):
        self.data = data
        self.ends = ends
        self.gets = list(gets)
        self.says = says
        self.given = given
        self.options = options


def breaks(name, data, given="online", ends="protocol", **more):
    """These bytes end the connection."""
    RULES[name] = Rule(data, ends, given=given, **more)


def bears(name, data, gets=(), says=b"", given="online", **options):
    """These bytes do not end it."""
    RULES[name] = Rule(data, None, gets, says, given, **options)


def packet(first, body=b""):
    """A packet of less than 128 bytes."""
    return bytes((first, len(body))) + body


def publish(topic, qos=0, pid=None, payload=b"x", first=None):
    """A PUBLISH; its first byte may be another one."""
    first = 0x30 | qos << 1 if first is None else first
    number = b"" if pid is None else bytes((pid >> 8, pid & 255))
    return packet(first, bytes((0, len(topic))) + topic + number + payload)


def large(first, n, body):
    """The beginning of a packet that says it goes on for n bytes, 128 to 268,435,455."""
    length = b""
    while n > 127:
        length += bytes((n & 127 | 128,))
        n >>= 7
    return bytes((first,)) + length + bytes((n,)) + body


# The packet types 0 and 15, and those that only a client sends

for kind in (0, 15):
    breaks(f"type {kind}", packet(kind << 4, b"\0\1"))
    breaks(f"type {kind}, empty", packet(kind << 4))
    breaks(f"type {kind}, with flags", packet(kind << 4 | 2, b"\0\1"))
    skipped = large(kind << 4, 5000, b"\0\1t")
    breaks(f"type {kind}, as large as a message that is skipped", skipped)
breaks("server-bound: CONNECT", packet(0x10, b"\0\4MQTT\4\2\0\0\0\0"))
breaks("server-bound: SUBSCRIBE", packet(0x82, b"\0\1\0\1t\0"))
breaks("server-bound: UNSUBSCRIBE", packet(0xA2, b"\0\1\0\1t"))
breaks("server-bound: PINGREQ", packet(0xC0))
breaks("server-bound: DISCONNECT", packet(0xE0))

# Flag bits, Remaining Length and packet identifier of what is small

NAMES = {
    0x40: "PUBACK", 0x50: "PUBREC", 0x62: "PUBREL", 0x70: "PUBCOMP", 0x90: "SUBACK",
    0xB0: "UNSUBACK",
}  # fmt: skip
for first, name in NAMES.items():
    more = b"\0" if first == 0x90 else b""  # a return code
    for bits in range(16):
        if bits != first & 15:
            breaks(f"flag bits of {name}: {bits}", packet(first & 0xF0 | bits, b"\0\1" + more))
    breaks(f"packet identifier 0: {name}", packet(first, b"\0\0" + more))
    breaks(f"Remaining Length: {name} of 0", packet(first))
    breaks(f"Remaining Length: {name} of 1", packet(first, b"\1"))
    if more:
        breaks("Remaining Length: SUBACK of 2", packet(0x90, b"\0\1"))
    else:
        breaks(f"Remaining Length: {name} of 3", packet(first, b"\0\1\0"))
        most = large(first, 268435455, b"\0\1")
        breaks(f"Remaining Length: {name} of 268,435,455", most)
for bits in range(1, 16):
    breaks(f"flag bits of PINGRESP: {bits}", packet(0xD0 | bits))
    breaks(f"flag bits of CONNACK: {bits}", packet(0x20 | bits, b"\0\0"), "greeting")
bears(
    "flag bits at level 3: PUBREL may carry DUP",
    packet(0x6A, b"\0\5"), says=packet(0x70, b"\0\5"), version=3,
)  # fmt: skip
for bits in (0, 1, 3, 6, 8, 11, 15):
    breaks(f"flag bits at level 3: PUBREL {bits}", packet(0x60 | bits, b"\0\5"), version=3)

breaks("Remaining Length: a fifth byte", b"\x30\x80\x80\x80\x80\x01")
breaks("Remaining Length: a fifth byte, of a type that is refused", b"\x00\xff\xff\xff\xff\x00")
breaks("Remaining Length: PINGRESP of 1", packet(0xD0, b"\0"))
breaks("Remaining Length: PINGRESP of 2", packet(0xD0, b"\0\1"))
breaks("Remaining Length: PUBLISH of 0", packet(0x30))
breaks("Remaining Length: PUBLISH of 1", packet(0x30, b"\0"))
bears(
    "Remaining Length: more bytes than are needed",
    b"\x30\x84\x80\x00\0\1tm", [(b"t", b"m", 0, 0, 0)],
)  # fmt: skip
bears(
    "Remaining Length: 321 is C1 02",
    b"\x30\xc1\x02\0\1t" + b"x" * 318, [(b"t", b"x" * 318, 0, 0, 0)], rx_size=512,
)  # fmt: skip

# QoS, DUP and packet identifier of a message

for bits in (6, 7, 14, 15):
    skipped = large(0x30 | bits, 5000, TOPIC + b"\0\1")
    breaks(f"QoS 3: flags {bits}", publish(b"t", pid=1, first=0x30 | bits))
    breaks(f"QoS 3: flags {bits}, of a message that is skipped", skipped)
for bits in (8, 9):
    bears(
        f"DUP at QoS 0, which nobody may send, harms nobody: flags {bits}",
        publish(b"t", first=0x30 | bits), [(b"t", b"x", 0, bits & 1, 1)],
    )  # fmt: skip
for qos in (1, 2):
    skipped = large(0x30 | qos << 1, 5000, TOPIC + b"\0\0")
    breaks(f"packet identifier 0: PUBLISH at QoS {qos}", publish(b"t", qos, 0))
    breaks(f"packet identifier 0: a message that is skipped, at QoS {qos}", skipped)
    breaks(f"no packet identifier: PUBLISH at QoS {qos}", publish(b"t", qos, payload=b""))
    breaks(f"half a packet identifier: PUBLISH at QoS {qos}", publish(b"t", qos, payload=b"\1"))

# Topic names

BAD_TEXT = {
    "empty": b"",
    "U+0000": b"a\0b",
    "+": b"a/+",
    "#": b"#",
    "# in a level": b"a#b",
    "UTF-8: a byte that there is not, FF": b"a\xff",
    "UTF-8: FE": b"\xfe",
    "UTF-8: a continuation alone": b"a\x80",
    "UTF-8: no continuation": b"\xc3a",
    "UTF-8: cut, one of two bytes": b"a\xc3",
    "UTF-8: cut, two of three bytes": b"a\xe2\x82",
    "UTF-8: cut, three of four bytes": b"a\xf0\x9f\xa6",
    "UTF-8: not the shortest form, 2 bytes": b"\xc1\xbf",
    "UTF-8: not the shortest form of U+0000": b"\xc0\x80",
    "UTF-8: not the shortest form, 3 bytes": b"\xe0\x9f\xbf",
    "UTF-8: not the shortest form, 4 bytes": b"\xf0\x8f\xbf\xbf",
    "UTF-8: a surrogate, D800": b"\xed\xa0\x80",
    "UTF-8: a surrogate, DFFF": b"\xed\xbf\xbf",
    "UTF-8: past U+10FFFF": b"\xf4\x90\x80\x80",
    "UTF-8: a first byte past F4": b"\xf5\x80\x80\x80",
}
for name, text in BAD_TEXT.items():
    skipped = large(0x30, 5000, bytes((0, len(text))) + text)
    breaks("topic name: " + name, publish(text))
    breaks(f"topic name: {name}, of a message that is skipped", skipped)
GOOD_TEXT = {
    "one space": b" ",
    "U+0001": b"\x01",
    "U+007F and U+0080": b"\x7f\xc2\x80",
    "U+07FF and U+0800": b"\xdf\xbf\xe0\xa0\x80",
    "U+D7FF and U+E000": b"\xed\x9f\xbf\xee\x80\x80",
    "U+FFFF and U+10000": b"\xef\xbf\xbf\xf0\x90\x80\x80",
    "U+10FFFF": b"\xf4\x8f\xbf\xbf",
    "empty levels": b"//",
    "$": b"$SYS",
}
for name, text in GOOD_TEXT.items():
    bears("topic name, a good one: " + name, publish(text), [(text, b"x", 0, 0, 0)])
breaks("topic name: one byte longer than the packet", packet(0x30, b"\0\2t"))
breaks("topic name: longer than the packet", packet(0x30, b"\xff\xfft"))
breaks("topic name: takes the place of the packet identifier", packet(0x32, b"\0\3t\0\1"))

# CONNACK

breaks("CONNACK is not first: PUBLISH", publish(b"t"), "greeting")
breaks("CONNACK is not first: PINGRESP", packet(0xD0), "greeting")
breaks("CONNACK is not first: SUBACK", packet(0x90, b"\0\1\0"), "greeting")
skipped = large(0x30, 5000, TOPIC)
breaks("CONNACK is not first: a message larger than rx_size", skipped, "greeting")
breaks("a second CONNACK", packet(0x20, b"\0\0"))
breaks("a second CONNACK, which refuses", packet(0x20, b"\0\5"))
breaks("a second CONNACK at once", packet(0x20, b"\0\0") * 2, "greeting")
for n in (0, 1, 3):
    breaks(f"Remaining Length: CONNACK of {n}", packet(0x20, bytes(n)), "greeting")
for bits in (2, 3, 0x80, 0xFF):
    connack = packet(0x20, bytes((bits, 0)))
    breaks(f"CONNACK: reserved flags {bits}", connack, "greeting", clean_session=False)
present = packet(0x20, b"\1\0")
refusal = packet(0x20, b"\1\5")
breaks("CONNACK: session present on a clean session", present, "greeting")
breaks("CONNACK: session present with a refusal", refusal, "greeting", clean_session=False)
bears(
    "CONNACK: session present",
    present + MESSAGE, [GOT], given="greeting", clean_session=False,
)  # fmt: skip
bears(
    "CONNACK at level 3: no flags, but a reserved byte",
    packet(0x20, b"\xff\0") + MESSAGE, [GOT], given="greeting", version=3,
)  # fmt: skip
for code in (1, 2, 3, 4, 5, 6, 255):
    refusal = packet(0x20, bytes((0, code)))
    breaks(f"CONNACK: return code {code}", refusal, "greeting", ends="refused")

# SUBACK. What was asked for is the filters "a" and "b", with packet identifier 1.

for code in (3, 4, 0x7F, 0x81, 0xFF):
    suback = packet(0x90, bytes((0, 1, 0, code)))
    breaks(f"SUBACK: return code {code}", suback, "subscribing")
    breaks(f"SUBACK of nobody: return code {code}", packet(0x90, bytes((0, 9, code))))
for what, codes in (("fewer", b"\0"), ("more", b"\0\0\0")):
    suback = packet(0x90, b"\0\1" + codes)
    breaks(f"SUBACK: {what} return codes than filters", suback, "subscribing")
bears(
    "SUBACK: 0x80 is told to the caller, and no error",
    packet(0x90, b"\0\1\2\x80") + MESSAGE, [GOT], given="subscribing",
)  # fmt: skip
bears(
    "a PUBLISH before the SUBACK",
    publish(b"a") + packet(0x90, b"\0\1\0\0"), [(b"a", b"x", 0, 0, 0)], given="subscribing",
)  # fmt: skip

# Acknowledgements, which end nothing. Those of a message have packet identifier 1.

for first, name in NAMES.items():
    if first != 0x62:
        more = b"\0" if first == 0x90 else b""
        bears(f"not in flight: {name}", packet(first, b"\0\x09" + more) + MESSAGE, [GOT])
bears("not in flight: PUBREL is answered", packet(0x62, b"\0\x09"), says=packet(0x70, b"\0\x09"))
PUBACK, PUBREC, PUBREL, PUBCOMP = [packet(first, b"\0\1") for first in (0x40, 0x50, 0x62, 0x70)]
bears("in flight: QoS 1", PUBACK, given="publishing 1")
bears(
    "in flight: QoS 1, the wrong acknowledgements",
    PUBREC + PUBCOMP + MESSAGE, [GOT], given="publishing 1",
)  # fmt: skip
for name, data, gets, says in (
    ("PUBREC comes again", PUBREC * 2, [], PUBREL * 2),
    ("to the end", PUBREC + PUBCOMP, [], PUBREL),
    ("PUBACK of a broker that does not have it", PUBACK + PUBREC + MESSAGE, [GOT], b""),
    ("PUBACK after PUBREC settles nothing", PUBREC + PUBACK + PUBREC, [], PUBREL * 2),
    ("PUBCOMP before PUBREC", PUBCOMP + PUBREC, [], PUBREL),
):
    bears("in flight: QoS 2, " + name, data, gets, says, "publishing 2")

# Messages

bears(
    "QoS 1 is acknowledged",
    publish(b"t", 1, 0x1234), [(b"t", b"x", 1, 0, 0)], packet(0x40, b"\x12\x34"),
)  # fmt: skip
bears(
    "QoS 1, twice: delivered twice",
    publish(b"t", 1, 5) + publish(b"t", 1, 5, first=0x3A),
    [(b"t", b"x", 1, 0, 0), (b"t", b"x", 1, 0, 1)], packet(0x40, b"\0\5") * 2,
)  # fmt: skip
bears(
    "QoS 2, twice: delivered once",
    publish(b"t", 2, 5) + publish(b"t", 2, 5, first=0x3C),
    [(b"t", b"x", 2, 0, 0)], packet(0x50, b"\0\5") * 2,
)  # fmt: skip
bears(
    "QoS 2, after its release it is another message",
    publish(b"t", 2, 5) + packet(0x62, b"\0\5") + publish(b"t", 2, 5),
    [(b"t", b"x", 2, 0, 0)] * 2,
    packet(0x50, b"\0\5") + packet(0x70, b"\0\5") + packet(0x50, b"\0\5"),
)  # fmt: skip
bears(
    "QoS 2, RETAIN and DUP",
    publish(b"t", 2, 6, first=0x3D), [(b"t", b"x", 2, 1, 1)], packet(0x50, b"\0\6"),
)  # fmt: skip
bears("a message without a payload", publish(b"t", payload=b""), [(b"t", b"", 0, 0, 0)])

# What does not fit

for name, first, says in (("a message is skipped and acknowledged", 0x32, 0x40),
                          ("at QoS 2 too", 0x34, 0x50)):  # fmt: skip
    skipped = large(first, 205, TOPIC + b"\0\7" + b"x" * 200)
    bears(f"larger than rx_size: {name}", skipped + MESSAGE, [GOT], packet(says, b"\0\7"))
suback = large(0x90, 200, b"\0\1\0")
breaks("larger than rx_size: a SUBACK", suback, "subscribing", ends="resource")
breaks("larger than rx_size: a topic name", large(0x30, 205, b"\0\xc8"), ends="resource")
endless = large(0x32, 268435455, TOPIC + b"\0\7")
bears("larger than rx_size: a message of 256 MB that never comes", endless)
breaks(
    "more QoS 2 messages than `incoming`",
    b"".join([publish(b"t", 2, pid) for pid in (1, 2, 3)]), ends="resource", incoming=2,
    gets=[(b"t", b"x", 2, 0, 0)] * 2, says=packet(0x50, b"\0\1") + packet(0x50, b"\0\2"),
)  # fmt: skip

WAYS = ("at once", "byte by byte", "split at every position")


def cuts(data, way):
    """The pieces in which the bytes come, for each time that they do."""
    if way == "at once":
        return [[data]]
    if way == "byte by byte":
        return [[data[i : i + 1] for i in range(len(data))]]
    return [[data[:i], data[i:]] for i in range(1, len(data))]


def check(rule, way):
    """Run a rule; AssertionError says what else happened."""
    # A message behind what ends the connection must not be delivered any more.
    data = rule.data + (MESSAGE if rule.ends else b"")
    before = flatmq.client.random, flatmq.client.ticks_ms
    try:
        for pieces in cuts(data, way):
            _check(rule, pieces)
    finally:
        flatmq.client.random, flatmq.client.ticks_ms = before


def _check(rule, pieces):
    got = []
    log = []

    def handler(m):
        got.append((m.topic, m.payload, m.qos, m.retain, m.dup))

    link = drive.Link(log.append)
    flatmq.client.random = drive.Dice(0)
    flatmq.client.ticks_ms = link.ticks_ms
    options = {"rx_size": 128}
    options.update(rule.options)
    client = Client(b"rule", link=link, on_message=handler, **options)
    client.start()
    while client.state != "greeting":
        link.now += 1000
        client.poll()
    if rule.given != "greeting":
        feed(client, link, b"\x20\2\0\0")
    if rule.given == "subscribing":
        client.subscribe([b"a", b"b"], handler)
    elif rule.given == "publishing 1":
        client.publish(b"t", b"", 1)
    elif rule.given == "publishing 2":
        client.publish(b"t", b"", 2)
    client.poll()
    link.wire = bytearray()
    for piece in pieces:
        if link.open:
            feed(client, link, piece)
    kind = client.error.kind if client.error else None
    same(kind, rule.ends, "ends")
    same(link.open, not rule.ends, "open")
    same(got, rule.gets, "gets")
    if rule.ends:  # what was to be said may have been cut
        same(rule.says[: len(link.wire)], bytes(link.wire), "says")
    else:
        same(bytes(link.wire), rule.says, "says")


def feed(client, link, data):
    """Have the client read these bytes."""
    link.data = data
    link.at = 0
    while client.poll():
        pass


def same(got, wanted, what):
    """Fail unless they are the same."""
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def main():
    """Run all of them in every way."""
    for name, rule in RULES.items():
        for way in WAYS:
            try:
                check(rule, way)
            except AssertionError as e:
                raise AssertionError(f"{name}, {way}: {e}") from e
    print("RULES", len(RULES))


if __name__ == "__main__":
    main()
