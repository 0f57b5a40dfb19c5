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


RULES = {}

# The packet types 0 and 15, and those that only a client sends

for kind in (0, 15):
    RULES[f"type {kind}"] = Rule(packet(kind << 4, b"\0\1"), "protocol")
    RULES[f"type {kind}, empty"] = Rule(packet(kind << 4), "protocol")
    RULES[f"type {kind}, with flags"] = Rule(packet(kind << 4 | 2, b"\0\1"), "protocol")
    RULES[f"type {kind}, as large as a message that is skipped"] = Rule(
        large(kind << 4, 5000, b"\0\1t"), "protocol"
    )
for name, data in (
    ("CONNECT", packet(0x10, b"\0\4MQTT\4\2\0\0\0\0")),
    ("SUBSCRIBE", packet(0x82, b"\0\1\0\1t\0")),
    ("UNSUBSCRIBE", packet(0xA2, b"\0\1\0\1t")),
    ("PINGREQ", packet(0xC0)),
    ("DISCONNECT", packet(0xE0)),
):
    RULES["server-bound: " + name] = Rule(data, "protocol")

# Wrong flag bits

NAMES = {
    0x40: "PUBACK", 0x50: "PUBREC", 0x62: "PUBREL", 0x70: "PUBCOMP", 0x90: "SUBACK",
    0xB0: "UNSUBACK",
}  # fmt: skip
for first, name in NAMES.items():
    body = b"\0\1\0" if first == 0x90 else b"\0\1"
    for bits in range(16):
        if bits != first & 15:
            RULES[f"flag bits of {name}: {bits}"] = Rule(
                packet(first & 0xF0 | bits, body), "protocol"
            )
for bits in range(1, 16):
    RULES[f"flag bits of PINGRESP: {bits}"] = Rule(packet(0xD0 | bits), "protocol")
    RULES[f"flag bits of CONNACK: {bits}"] = Rule(
        packet(0x20 | bits, b"\0\0"), "protocol", given="greeting"
    )
RULES["flag bits at level 3: PUBREL may carry DUP"] = Rule(
    packet(0x6A, b"\0\5"), says=packet(0x70, b"\0\5"), version=3
)
for bits in (0, 1, 3, 6, 8, 11, 15):
    RULES[f"flag bits at level 3: PUBREL {bits}"] = Rule(
        packet(0x60 | bits, b"\0\5"), "protocol", version=3
    )

# Remaining Length

RULES["Remaining Length: a fifth byte"] = Rule(b"\x30\x80\x80\x80\x80\x01", "protocol")
RULES["Remaining Length: a fifth byte, of a type that is refused"] = Rule(
    b"\x00\xff\xff\xff\xff\x00", "protocol"
)
for first, name in NAMES.items():
    RULES[f"Remaining Length: {name} of 0"] = Rule(packet(first), "protocol")
    RULES[f"Remaining Length: {name} of 1"] = Rule(packet(first, b"\1"), "protocol")
    if first == 0x90:
        RULES["Remaining Length: SUBACK of 2"] = Rule(packet(first, b"\0\1"), "protocol")
    else:
        RULES[f"Remaining Length: {name} of 3"] = Rule(packet(first, b"\0\1\0"), "protocol")
        RULES[f"Remaining Length: {name} of 268,435,455"] = Rule(
            large(first, 268435455, b"\0\1"), "protocol"
        )
RULES["Remaining Length: PINGRESP of 1"] = Rule(packet(0xD0, b"\0"), "protocol")
RULES["Remaining Length: PINGRESP of 2"] = Rule(packet(0xD0, b"\0\1"), "protocol")
RULES["Remaining Length: PUBLISH of 0"] = Rule(packet(0x30), "protocol")
RULES["Remaining Length: PUBLISH of 1"] = Rule(packet(0x30, b"\0"), "protocol")
RULES["Remaining Length: more bytes than are needed"] = Rule(
    b"\x30\x84\x80\x00\0\1tm", gets=[(b"t", b"m", 0, 0, 0)]
)
RULES["Remaining Length: 321 is C1 02"] = Rule(
    b"\x30\xc1\x02\0\1t" + b"x" * 318, gets=[(b"t", b"x" * 318, 0, 0, 0)], rx_size=512
)

# QoS, DUP, packet identifier

for bits in (6, 7, 14, 15):
    RULES[f"QoS 3: flags {bits}"] = Rule(publish(b"t", pid=1, first=0x30 | bits), "protocol")
    RULES[f"QoS 3: flags {bits}, of a message that is skipped"] = Rule(
        large(0x30 | bits, 5000, TOPIC + b"\0\1"), "protocol"
    )
for bits in (8, 9):
    RULES[f"DUP at QoS 0, which nobody may send, harms nobody: flags {bits}"] = Rule(
        publish(b"t", first=0x30 | bits), gets=[(b"t", b"x", 0, bits & 1, 1)]
    )
for qos in (1, 2):
    RULES[f"packet identifier 0: PUBLISH at QoS {qos}"] = Rule(publish(b"t", qos, 0), "protocol")
    RULES[f"packet identifier 0: a message that is skipped, at QoS {qos}"] = Rule(
        large(0x30 | qos << 1, 5000, TOPIC + b"\0\0"), "protocol"
    )
    RULES[f"no packet identifier: PUBLISH at QoS {qos}"] = Rule(
        publish(b"t", qos, payload=b""), "protocol"
    )
    RULES[f"half a packet identifier: PUBLISH at QoS {qos}"] = Rule(
        publish(b"t", qos, payload=b"\1"), "protocol"
    )
for first, name in NAMES.items():
    body = b"\0\0\0" if first == 0x90 else b"\0\0"
    RULES["packet identifier 0: " + name] = Rule(packet(first, body), "protocol")

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
    RULES["topic name: " + name] = Rule(publish(text), "protocol")
    RULES[f"topic name: {name}, of a message that is skipped"] = Rule(
        large(0x30, 5000, bytes((0, len(text))) + text), "protocol"
    )
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
    RULES["topic name, a good one: " + name] = Rule(publish(text), gets=[(text, b"x", 0, 0, 0)])
RULES["topic name: one byte longer than the packet"] = Rule(packet(0x30, b"\0\2t"), "protocol")
RULES["topic name: longer than the packet"] = Rule(packet(0x30, b"\xff\xfft"), "protocol")
RULES["topic name: takes the place of the packet identifier"] = Rule(
    packet(0x32, b"\0\3t\0\1"), "protocol"
)

# CONNACK

RULES["CONNACK is not first: PUBLISH"] = Rule(publish(b"t"), "protocol", given="greeting")
RULES["CONNACK is not first: PINGRESP"] = Rule(packet(0xD0), "protocol", given="greeting")
RULES["CONNACK is not first: SUBACK"] = Rule(packet(0x90, b"\0\1\0"), "protocol", given="greeting")
RULES["CONNACK is not first: a message larger than rx_size"] = Rule(
    large(0x30, 5000, TOPIC), "protocol", given="greeting"
)
RULES["a second CONNACK"] = Rule(packet(0x20, b"\0\0"), "protocol")
RULES["a second CONNACK, which refuses"] = Rule(packet(0x20, b"\0\5"), "protocol")
RULES["a second CONNACK at once"] = Rule(packet(0x20, b"\0\0") * 2, "protocol", given="greeting")
for n in (0, 1, 3):
    RULES[f"Remaining Length: CONNACK of {n}"] = Rule(
        packet(0x20, bytes(n)), "protocol", given="greeting"
    )
for bits in (2, 3, 0x80, 0xFF):
    RULES[f"CONNACK: reserved flags {bits}"] = Rule(
        packet(0x20, bytes((bits, 0))), "protocol", given="greeting", clean_session=False
    )
RULES["CONNACK: session present on a clean session"] = Rule(
    packet(0x20, b"\1\0"), "protocol", given="greeting"
)
RULES["CONNACK: session present with a refusal"] = Rule(
    packet(0x20, b"\1\5"), "protocol", given="greeting", clean_session=False
)
RULES["CONNACK: session present"] = Rule(
    packet(0x20, b"\1\0") + MESSAGE, gets=[GOT], given="greeting", clean_session=False
)
RULES["CONNACK at level 3: no flags, but a reserved byte"] = Rule(
    packet(0x20, b"\xff\0") + MESSAGE, gets=[GOT], given="greeting", version=3
)
for code in (1, 2, 3, 4, 5, 6, 255):
    RULES[f"CONNACK: return code {code}"] = Rule(
        packet(0x20, bytes((0, code))), "refused", given="greeting"
    )

# SUBACK. What was asked for is the filters "a" and "b", with packet identifier 1.

for code in (3, 4, 0x7F, 0x81, 0xFF):
    RULES[f"SUBACK: return code {code}"] = Rule(
        packet(0x90, bytes((0, 1, 0, code))), "protocol", given="subscribing"
    )
    RULES[f"SUBACK of nobody: return code {code}"] = Rule(
        packet(0x90, bytes((0, 9, code))), "protocol"
    )
RULES["SUBACK: fewer return codes than filters"] = Rule(
    packet(0x90, b"\0\1\0"), "protocol", given="subscribing"
)
RULES["SUBACK: more return codes than filters"] = Rule(
    packet(0x90, b"\0\1\0\0\0"), "protocol", given="subscribing"
)
RULES["SUBACK: 0x80 is told to the caller, and no error"] = Rule(
    packet(0x90, b"\0\1\2\x80") + MESSAGE, gets=[GOT], given="subscribing"
)
RULES["a PUBLISH before the SUBACK"] = Rule(
    publish(b"a") + packet(0x90, b"\0\1\0\0"), gets=[(b"a", b"x", 0, 0, 0)], given="subscribing"
)

# Acknowledgements, which end nothing

for first, name in ((0x40, "PUBACK"), (0x50, "PUBREC"), (0x70, "PUBCOMP"), (0xB0, "UNSUBACK")):
    RULES["not in flight: " + name] = Rule(packet(first, b"\0\x09") + MESSAGE, gets=[GOT])
RULES["not in flight: SUBACK"] = Rule(packet(0x90, b"\0\x09\0") + MESSAGE, gets=[GOT])
RULES["not in flight: PUBREL is answered"] = Rule(
    packet(0x62, b"\0\x09"), says=packet(0x70, b"\0\x09")
)
RULES["in flight: QoS 1"] = Rule(packet(0x40, b"\0\1"), given="publishing 1")
RULES["in flight: QoS 1, the wrong acknowledgements"] = Rule(
    packet(0x50, b"\0\1") + packet(0x70, b"\0\1") + MESSAGE, gets=[GOT], given="publishing 1"
)
RULES["in flight: QoS 2, PUBREC comes again"] = Rule(
    packet(0x50, b"\0\1") * 2, says=packet(0x62, b"\0\1") * 2, given="publishing 2"
)
RULES["in flight: QoS 2, to the end"] = Rule(
    packet(0x50, b"\0\1") + packet(0x70, b"\0\1"), says=packet(0x62, b"\0\1"), given="publishing 2"
)
RULES["in flight: QoS 2, PUBACK of a broker that does not have it"] = Rule(
    packet(0x40, b"\0\1") + packet(0x50, b"\0\1") + MESSAGE, gets=[GOT], given="publishing 2"
)
RULES["in flight: QoS 2, PUBACK after PUBREC settles nothing"] = Rule(
    packet(0x50, b"\0\1") + packet(0x40, b"\0\1") + packet(0x50, b"\0\1"),
    says=packet(0x62, b"\0\1") * 2,
    given="publishing 2",
)
RULES["in flight: QoS 2, PUBCOMP before PUBREC"] = Rule(
    packet(0x70, b"\0\1") + packet(0x50, b"\0\1"), says=packet(0x62, b"\0\1"), given="publishing 2"
)

# Messages

RULES["QoS 1 is acknowledged"] = Rule(
    publish(b"t", 1, 0x1234), gets=[(b"t", b"x", 1, 0, 0)], says=packet(0x40, b"\x12\x34")
)
RULES["QoS 1, twice: delivered twice"] = Rule(
    publish(b"t", 1, 5) + publish(b"t", 1, 5, first=0x3A),
    gets=[(b"t", b"x", 1, 0, 0), (b"t", b"x", 1, 0, 1)],
    says=packet(0x40, b"\0\5") * 2,
)
RULES["QoS 2, twice: delivered once"] = Rule(
    publish(b"t", 2, 5) + publish(b"t", 2, 5, first=0x3C),
    gets=[(b"t", b"x", 2, 0, 0)],
    says=packet(0x50, b"\0\5") * 2,
)
RULES["QoS 2, after its release it is another message"] = Rule(
    publish(b"t", 2, 5) + packet(0x62, b"\0\5") + publish(b"t", 2, 5),
    gets=[(b"t", b"x", 2, 0, 0)] * 2,
    says=packet(0x50, b"\0\5") + packet(0x70, b"\0\5") + packet(0x50, b"\0\5"),
)
RULES["QoS 2, RETAIN and DUP"] = Rule(
    publish(b"t", 2, 6, first=0x3D), gets=[(b"t", b"x", 2, 1, 1)], says=packet(0x50, b"\0\6")
)
RULES["a message without a payload"] = Rule(
    publish(b"t", payload=b""), gets=[(b"t", b"", 0, 0, 0)]
)

# What does not fit

RULES["larger than rx_size: a message is skipped and acknowledged"] = Rule(
    large(0x32, 205, TOPIC + b"\0\7" + b"x" * 200) + MESSAGE,
    gets=[GOT],
    says=packet(0x40, b"\0\7"),
)
RULES["larger than rx_size: at QoS 2 too"] = Rule(
    large(0x34, 205, TOPIC + b"\0\7" + b"x" * 200) + MESSAGE,
    gets=[GOT],
    says=packet(0x50, b"\0\7"),
)
RULES["larger than rx_size: a SUBACK"] = Rule(
    large(0x90, 200, b"\0\1\0"), "resource", given="subscribing"
)
RULES["larger than rx_size: a topic name"] = Rule(large(0x30, 205, b"\0\xc8"), "resource")
RULES["larger than rx_size: a message of 256 MB that never comes"] = Rule(
    large(0x32, 268435455, TOPIC + b"\0\7")
)
RULES["more QoS 2 messages than `incoming`"] = Rule(
    publish(b"t", 2, 1) + publish(b"t", 2, 2) + publish(b"t", 2, 3),
    "resource",
    gets=[(b"t", b"x", 2, 0, 0)] * 2,
    says=packet(0x50, b"\0\1") + packet(0x50, b"\0\2"),
    incoming=2,
)

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
