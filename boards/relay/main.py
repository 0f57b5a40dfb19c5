"""Raspberry Pi Pico W: a relay at GP16 is a switch in Home Assistant."""

import binascii
import time

import machine

from chip_rp2 import Chip
from flatmq import Client
from flatmq.ha import Device
from settings import load
from wifi import Wifi

settings = load("wifi.ssid", "broker.host")
broker = settings["broker"]
name = settings["device"]["name"] or "relay-" + binascii.hexlify(machine.unique_id()).decode()
wifi = Wifi(**settings["wifi"], power_save=False)
relay = machine.Pin(16, machine.Pin.OUT)
relay.value(0)

client = Client(
    name,
    broker["host"],
    broker["port"],
    user=broker["user"] or None,
    password=broker["password"] or None,
)
device = Device(client, name, model="Pico W")
switch = device.switch("relay", relay.value, name="Relay", device_class="outlet")
switch.set(False)

chip = Chip()
if settings["device"]["watchdog"]:
    chip.watch()
client.start()
try:
    while True:
        chip.feed()
        if wifi.poll(client.connected) or client.connected:
            client.poll(20)
        else:  # without Wi-Fi no name is looked up: that might never end
            time.sleep_ms(20)
        device.poll()
except KeyboardInterrupt:
    chip.release()
    raise
