"""The packets that every client and every floor is measured with, and the clock.

The peer, on CPython, takes its packets from here too.
"""

import time

TOPICS = (b"sensors/pico-1/temp1", b"sensors/pico-1/temp2")
PAYLOAD = b"0123456789abcdef0123456789abcdef"
BURST = 16
SIZE = 56  # bytes of one QoS 0 PUBLISH of the above

seen = [0]  # messages that a handler has read; a list, so that counting allocates nothing


def publish(topic, payload, qos, identifier, properties=b""):
    """Return a whole PUBLISH packet of at most 129 bytes.

    In MQTT 5 it has properties, which are given with their length in front.
    """
    body = bytes((0, len(topic))) + topic
    if qos:
        body += bytes((identifier >> 8, identifier & 255))
    body += properties + payload
    return bytes((0x30 | qos << 1, len(body))) + body


# This process's CPU time in steps of 1 ms; the port to WebAssembly has none.
cpu_seconds = getattr(time, "clock", None)
ticks_ms = getattr(time, "ticks_ms", None)


def since_ms(start):
    return time.ticks_diff(time.ticks_ms(), start)
