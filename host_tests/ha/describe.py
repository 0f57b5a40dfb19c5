"""Make a device with a component of each platform, and print what it publishes, in hex.

Runs on both interpreters. The first line is the size of the client's queue.
"""

from binascii import hexlify

from model_broker import Broker

from flatmq import Client
from flatmq.ha import Device

SIZE = 256


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
        client.poll(0)
        device.poll()
    print(SIZE)
    for topic, _, payload in broker.taken:
        print(hexlify(topic).decode(), hexlify(payload).decode())


main()
