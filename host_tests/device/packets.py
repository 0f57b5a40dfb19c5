"""MQTT packets as the peer of a test writes and expects them; made without the client's code."""

CONNACK = b"\x20\x02\x00\x00"
RESUMED = b"\x20\x02\x01\x00"  # a CONNACK that says the session is present
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


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


def publish(topic, payload, first=0x30):
    """A PUBLISH at QoS 0 of up to 16,383 bytes, whose first byte may have other flags."""
    return _publish(first, topic, b"", payload)


def numbered(topic, payload, first):
    """A PUBLISH at QoS 1 or 2, as the flags in its first byte tell."""
    packet = _publish(first, topic, b"\0\0", payload)
    return Numbered(packet, len(packet) - len(payload) - 2)


def _publish(first, topic, identifier, payload):
    n = 2 + len(topic) + len(identifier) + len(payload)
    length = bytes((n,) if n < 128 else (n & 127 | 128, n >> 7))
    topic = bytes((len(topic) >> 8, len(topic) & 255)) + topic
    return bytes((first,)) + length + topic + identifier + payload


def puback():
    return Numbered(b"\x40\x02\0\0")


def pubrec():
    return Numbered(b"\x50\x02\0\0")


def pubrel():
    return Numbered(b"\x62\x02\0\0")


def pubcomp():
    return Numbered(b"\x70\x02\0\0")
