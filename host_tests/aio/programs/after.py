"""The program of before.py, moved to flatmq."""

import asyncio
import sys

import network

from flatmq.aio import Client


async def wifi():
    radio = network.WLAN(network.WLAN.IF_STA)
    radio.active(True)
    while True:
        if not radio.isconnected():
            radio.connect("home", "secret")
        await asyncio.sleep(10)


async def up(client):
    while True:
        await client.connected()
        await client.publish("shed/status", "online", retain=True, qos=1)
        await client.lost()


async def down(client):
    while True:
        await client.connected()
        await client.lost()
        print("lost")


async def messages(client):
    async for m in client.subscribe("shed/command", qos=1):
        print(m.topic, m.payload, bool(m.retain))
        await client.publish("shed/answer", m.payload, qos=1)


async def readings(client):
    n = 0
    while True:
        await client.publish("shed/reading", str(n), qos=1)
        n += 1
        await asyncio.sleep(1)


async def main():
    client = Client("shed", sys.argv[1], int(sys.argv[2]), keepalive=60)
    client.core.set_will("shed/status", "offline", retain=True, qos=1)
    async with client:
        await asyncio.gather(wifi(), up(client), down(client), messages(client), readings(client))


asyncio.run(main())
