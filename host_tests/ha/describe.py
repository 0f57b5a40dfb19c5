"""Make a device with a component of each platform, and print what it publishes, in hex.

Runs on both interpreters. The first line is the size of the client's queue.
"""

from binascii import hexlify

from flatmq import Client
from flatmq.ha import Device

SIZE = 256


class Broker:
    """A link and its stream: accepts and acknowledges everything, and keeps what is published."""

    address = None

    def __init__(self):
        self.published = []
        self._in = bytearray(b"\x20\x02\0\0")
        self._out = bytearray()

    def resolve(self):
        self.address = True

    def connect(self):
        pass

    close = connect

    def stream(self):
        return self

    def wait(self, ms, out):
        pass

    def readinto(self, into):
        n = min(len(into), len(self._in))
        if not n:
            return None
        into[:n] = self._in[:n]
        self._in = self._in[n:]
        return n

    def write(self, buf, at, n):
        self._out += bytes(buf[at : at + n])
        while self._take():
            pass
        return n

    def _take(self):
        """Take a packet from what was written. Returns False if there is none that is whole."""
        out = self._out
        n = 0
        at = 1
        while True:
            if at >= len(out):
                return False
            n |= (out[at] & 127) << 7 * (at - 1)
            at += 1
            if out[at - 1] < 128:
                break
        if len(out) < at + n:
            return False
        body = bytes(out[at : at + n])
        kind = out[0] >> 4
        self._out = out[at + n :]
        if kind == 8:
            self._in += b"\x90\x04" + body[:2] + b"\1\1"
        elif kind == 3:
            end = 2 + (body[0] << 8 | body[1])
            self._in += b"\x40\x02" + body[end : end + 2]
            self.published.append((body[2:end], body[end + 2 :]))
        return True


def main():
    broker = Broker()
    client = Client(b"board", link=broker, tx_size=SIZE)
    device = Device(client, 'Kitchen "ö"', model="Pico W", sw_version="1.0")
    sensor = device.sensor(
        "sensor", unit_of_measurement="°C", device_class="temperature", state_class="measurement"
    )
    text = device.sensor("sensor-2", entity_category="diagnostic", icon="mdi:waves")
    motion = device.binary_sensor("binary_sensor", device_class="motion")
    switch = device.switch("switch", print)
    light = device.light("light", print, name="Lamp")
    number = device.number("number", print, 50, 300, 5, 1, unit_of_measurement="°C")
    device.button("button", print, device_class="restart")
    device.update("update", "1.0", b"dev/board/latest", print)
    device.remove("switch", "gone")
    sensor.set(-2150, 2)
    text.set("trüb")
    motion.set(True)
    switch.set(None)
    light.set(0)
    number.set(215, 1)
    client.start()
    for _ in range(1000):
        client.poll()
        device.poll()
    print(SIZE)
    for topic, payload in broker.published:
        print(hexlify(topic).decode(), hexlify(payload).decode())


main()
