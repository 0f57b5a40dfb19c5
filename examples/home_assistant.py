"""A relay and a counter of its switchings, which appear in Home Assistant by themselves.

Needs `mpremote mip install build/mip/ha.json` on a board with Wi-Fi, a relay at GPIO 16, and Home
Assistant with its MQTT integration, connected to the same broker.
"""

from machine import Pin

from flatmq import Client
from flatmq.ha import Device

relay = Pin(16, Pin.OUT)
switched = [0]


def switch(on):
    """Do what Home Assistant asks for. When this returns, `on` is published as the state."""
    relay.value(on)
    switched[0] += 1
    count.set(switched[0])


client = Client(b"pump-1", "192.168.1.10")
device = Device(client, "Pump", model="Pico W")
pump = device.switch("pump", switch, name="Pump")
count = device.sensor("count", name="Switched", state_class="total_increasing")
relay.value(False)
pump.set(False)
count.set(0)
client.start()
while True:
    client.poll(20)
    device.poll()
