"""MQTT packets as the peer of a test writes and expects them; made without the client's code.

They are those of MQTT 3.1.1 until `speak("5")`; then they are those of MQTT 5, and with
`speak("5+")` each message has properties besides.
"""

# Content Type, Message Expiry Interval, and two User Properties, with their length before them.
SOME = b"\x20\x03\0\x04text\x02\0\1\0\0\x26\0\3one\0\1a\x26\0\3two\0\3bcd"

version = 4
NONE = b""  # the properties of a packet that has none
OF_MESSAGE = NONE  # those of each message
properties = None  # OF_MESSAGE for a client that publishes
CONNACK = b"\x20\x02\x00\x00"
RESUMED = b"\x20\x02\x01\x00"  # a CONNACK that says the session is present
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


def speak(of):
    """Have packets, and clients that are not given a version, be of this version from now on."""
    global version, properties, NONE, OF_MESSAGE, CONNACK, RESUMED
    version = int(of[0])
    NONE = b"\0" if version == 5 else b""
    OF_MESSAGE = NONE
    if of == "5+":
        from flatmq.properties import Properties

        pairs = ((b"one", b"a"), (b"two", b"bcd"))
        properties = Properties(pairs, content_type=b"text", expiry=65536)
        OF_MESSAGE = SOME
    CONNACK = bytes((0x20, 2 + len(NONE), 0, 0)) + NONE
    RESUMED = bytes((0x20, 2 + len(NONE), 1, 0)) + NONE


class Numbered:
    """A packet whose packet identifier, at its position `at`, is set before it is used."""

    def __init__(self, packet, at=2):
        self._packet = bytearray(packet)
        self._at = at

    def with_id(self, identifier):
        """The packet, with this identifier; the same object each time."""
        self._packet[self._at] = identifier >> 8
        self._packet[self._at + 1] = identifier & 255
        return self._packet


def publish(topic, payload, first=0x30, properties=None):
    """A PUBLISH at QoS 0 of up to 16,383 bytes, whose first byte may have other flags.

    Properties are given with their length before them.
    """
    return _publish(first, topic, b"", OF_MESSAGE if properties is None else properties, payload)


def numbered(topic, payload, first, properties=None):
    """A PUBLISH at QoS 1 or 2, as the flags in its first byte say."""
    block = OF_MESSAGE if properties is None else properties
    packet = _publish(first, topic, b"\0\0", block, payload)
    return Numbered(packet, len(packet) - len(payload) - len(block) - 2)


def _publish(first, topic, identifier, properties, payload):
    n = 2 + len(topic) + len(identifier) + len(properties) + len(payload)
    length = bytes((n,) if n < 128 else (n & 127 | 128, n >> 7))
    topic = bytes((len(topic) >> 8, len(topic) & 255)) + topic
    return bytes((first,)) + length + topic + identifier + properties + payload


def puback(more=b""):
    """A PUBACK; `more`, in MQTT 5, is the reason code and the properties."""
    return _answer(0x40, more)


def pubrec(more=b""):
    return _answer(0x50, more)


def pubrel(more=b""):
    return _answer(0x62, more)


def pubcomp(more=b""):
    return _answer(0x70, more)


def suback(qos):
    """A SUBACK for one topic filter."""
    return Numbered(bytes((0x90, 3 + len(NONE), 0, 0)) + NONE + bytes((qos,)))


def _answer(first, more):
    return Numbered(bytes((first, 2 + len(more), 0, 0)) + more)


# Without a reason code, which means success.
PUBACK = puback()
PUBREC = pubrec()
PUBREL = pubrel()
PUBCOMP = pubcomp()
