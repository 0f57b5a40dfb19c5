"""A program for mqtt_as: it reports whether it is online, publishes readings, answers commands."""

import asyncio
import sys

from mqtt_as import MQTTClient, config

config["client_id"] = "shed"
config["server"] = sys.argv[1]
config["port"] = int(sys.argv[2])
config["ssid"] = "home"
config["wifi_pw"] = "secret"
config["keepalive"] = 60
config["will"] = ("shed/status", "offline", True, 1)
config["queue_len"] = 4


async def up(client):
    while True:
        await client.up.wait()
        client.up.clear()
        await client.subscribe("shed/command", 1)
        await client.publish("shed/status", "online", retain=True, qos=1)


async def down(client):
    while True:
        await client.down.wait()
        client.down.clear()
        print("lost")


async def messages(client):
    async for topic, msg, retained in client.queue:
        print(topic, msg, bool(retained))
        await client.publish("shed/answer", msg, qos=1)


async def readings(client):
    n = 0
    while True:
        await client.publish("shed/reading", str(n), qos=1)
        n += 1
        await asyncio.sleep(1)


async def main():
    client = MQTTClient(config)
    await client.connect()
    await asyncio.gather(up(client), down(client), messages(client), readings(client))


asyncio.run(main())
