"""The messages in both directions: the same for both, and known to the device and host.

Message number i goes out at QoS i % 3, to a topic for that QoS, as number i // 3 there. It says
its number in the first four bytes; its size and its last byte follow from that number.
"""

SIZES = (4, 9, 17, 30, 46, 64, 90, 140)  # bytes; the last has a Remaining Length of two bytes
QOS = (0, 1, 2)
SUBJECTS = (b"/0", b"/1", b"/2")  # what follows the prefix of the direction
END = b"/end"  # what the device publishes last

# Each side sends at most so many messages more than it received, so that not more than twice as
# many are on their way in each direction, and the broker has to keep few for a device that is
# away: mosquitto by default drops what is beyond 1,000. Two thirds of LEAD, then, are at QoS 2;
# the device may have to remember some more, of a session that it is not sure of.
LEAD = 150


def count(messages, qos):
    """Return how many of `messages` go out at `qos`."""
    return (messages - qos + 2) // 3


def template(number):
    """The payload of message `number` of a QoS, but for its first four bytes."""
    size = SIZES[number & 7]
    return bytearray(4) + bytearray([97 + (number & 7)] * (size - 4))
