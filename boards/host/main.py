"""Publish readings from a sensor of this machine, without allocating memory.

Runs on MicroPython's unix port and on CPython. Copy it, and change the settings.
"""

from flatmq import Client
from flatmq.port import ticks_add, ticks_diff, ticks_ms
from sensor import open_sensor

HOST = "127.0.0.1"
PORT = 1883
DEVICE = b"host-1"
EVERY_MS = 200  # between two readings
READINGS = 25  # after these it disconnects

sensor = open_sensor()
failed = [0]  # readings; the status reports how many
# Numbers replace the spaces; JSON allows spaces before a number.
payload = bytearray(b'{"n":        ,"' + sensor.name + b'":            }')


def put(value, end):
    """Write an int into the payload, replacing the old one, so that it ends before `end`."""
    digits = -value if value < 0 else value
    while True:
        end -= 1
        payload[end] = 48 + digits % 10
        digits //= 10
        if not digits:
            break
    if value < 0:
        end -= 1
        payload[end] = 45
    while payload[end - 1] != 58:  # up to the colon
        end -= 1
        payload[end] = 32


def take_reading():
    """Put a reading into the payload. Returns whether the sensor could be read."""
    try:
        put(sensor.read(), len(payload) - 1)
    except OSError:
        return False
    return True


def publish_reading(client, topic, number):
    """Publish a reading. Returns whether there was room; if not, the caller tries again."""
    if not take_reading():
        return publish_failure(client)
    put(number, 13)
    return client.publish(topic, payload, qos=1) is not None


def publish_failure(client):
    """Report in the status that one more reading has failed. Returns whether there was room."""
    status = b"failed %d" % (failed[0] + 1)
    if client.publish(b"status/" + DEVICE, status, qos=1) is None:
        return False
    failed[0] += 1
    return True


def main():
    """Publish readings 1 to READINGS. Returns the number that the broker has not acknowledged."""
    topic = b"sensors/" + DEVICE
    client = Client(DEVICE, HOST, PORT)
    client.set_will(b"status/" + DEVICE, b"lost", qos=1)
    client.connect()
    number = 1
    due = ticks_ms()
    while number <= READINGS:
        left = ticks_diff(due, ticks_ms())
        if left > 0:
            client.poll(left)
        elif publish_reading(client, topic, number):
            number += 1
            due = ticks_add(due, EVERY_MS)
        else:
            client.poll(20)
    client.wait(10000)
    client.disconnect()
    return client.pending


if __name__ == "__main__":
    raise SystemExit(main())
