"""A program that can be replaced over MQTT, and returns if the new version does not work.

    flatmq ota keygen fleet.key
    flatmq image pico_w --firmware RPI_PICO_W.uf2 --sketch . --ota-key fleet.key.pub

are for once, in a folder with this file as main.py; the next two are for each new version.

    flatmq ota pack pico_w 2.package --sketch . --version 2
    flatmq ota push 192.168.1.10 pico-1 2.package --signing-key fleet.key
"""

import json

import network

from flatmq import Client
from flatmq.every import Every
from flatmq.ota import Updates

VERSION = "1"
SSID, KEY = "home", "secret"

wlan = network.WLAN(network.WLAN.IF_STA)
wlan.active(True)
with open("/ota.json") as f:  # written by `flatmq image`
    mine = json.load(f)
client = Client(b"pico-1", "192.168.1.10")
updates = Updates(
    client,
    b"dev/pico-1/",
    mine["board"],
    int(mine["key"], 16),
    healthy=lambda: client.stats.connects > 0,
)
client.start()
join = Every(20000)
report = Every(1000)
while True:
    if not wlan.isconnected() and join.due():
        wlan.disconnect()  # an ESP32 that is still trying would raise OSError
        wlan.connect(SSID, KEY)
    client.poll(20)
    updates.poll()
    if report.due():
        client.publish(b"dev/pico-1/version", VERSION)
