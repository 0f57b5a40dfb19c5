"""A sketch of a board with slots: a version that works, and what makes others fail.

It is a template: NAME=VALUE lines are put before it.
"""

import json

from flatmq import Client
from flatmq.ota import Updates
from flatmq.port import ticks_diff, ticks_ms

FOLDER = ""
PORT = 0
VERSION = "1"
FAULT = ""
MINUTES = 1

if FAULT == "import":
    raise ValueError("a sensor is missing")
with open(FOLDER + "/ota.json") as f:
    said = json.load(f)
client = Client(
    b"pico-1", "127.0.0.1", 1 if FAULT == "broker" else PORT, rx_size=256, tx_size=1024, quiet=True
)
updates = Updates(
    client,
    b"dev/pico-1/",
    said["board"],
    int(said["key"], 16),
    groups=(b"attic",),
    healthy=lambda: FAULT != "health",
    ready=lambda: "on battery" if FAULT == "battery" else "",
    minutes=MINUTES,
    folder=FOLDER,
)
with open(FOLDER + "/goal") as f:
    goal = f.read()  # the version with which it ends
client.start()
began = ticks_ms()
print("@runs", VERSION)
while ticks_diff(ticks_ms(), began) < 60000:
    client.poll(20)
    updates.poll()
    known = updates.record
    said = VERSION != "1" or known["failed"] or updates.state in ("refused", "cancelled")
    there = goal == VERSION and said and known["state"] == "good"
    if there and client.connected and not client.pending:
        break
    if FAULT == "late" and client.connected:
        raise ValueError("it works no longer")
