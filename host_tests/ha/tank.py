"""A tank as a device of Home Assistant: `tank.py HOST PORT NAME [removed]`, on MicroPython.

It prints each command. With `removed`, it has no valve any more, and says so.
"""

import sys

from flatmq import Client
from flatmq.ha import Device

host, port, name = sys.argv[1:4]
client = Client(b"tank-1", host, int(port), keepalive=4, retry_max_ms=1000)
device = Device(client, name, model="Tank", sw_version="1.0")
level = device.sensor(
    "level", unit_of_measurement="m", device_class="distance", state_class="measurement"
)
water = device.sensor("water", icon="mdi:water")
leak = device.binary_sensor("leak", device_class="moisture")
pump = device.switch("pump", lambda on: print("pump", on))
lamp = device.light("lamp", lambda brightness: print("lamp", brightness))
target = device.number(
    "target", lambda value: print("target", value), 50, 300, 5, 1, unit_of_measurement="°C"
)
device.button("restart", lambda: print("restart"), device_class="restart")
mode = device.component(
    "select", "mode", lambda value: print("mode", value), options=["eco", "fast"]
)


def install():
    print("install")
    firmware.set("1.1")


firmware = device.update("firmware", "1.0", "dev/tank-1/latest", install)
if "removed" in sys.argv:
    device.remove("switch", "valve")
else:
    device.switch("valve", print).set(True)
level.set(1234, 3)
water.set("clear")
leak.set(False)
pump.set(False)
lamp.set(0)
target.set(215, 1)
mode.set("eco")
client.start()
while True:
    client.poll(20)
    device.poll()
