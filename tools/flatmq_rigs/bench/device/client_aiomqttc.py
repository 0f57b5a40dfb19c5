"""aiomqttc: tasks under asyncio; eight tasks publish at QoS 1, each waits for its own answer."""

import sys

from packets import PAYLOAD, TOPICS, seen, since_ms, ticks_ms

TASKS = 8
asyncio = aiomqttc = None
wanted = [0]
done = []


def load():
    """The library logs with the board's clock, which the unix port does not have."""
    global asyncio, aiomqttc
    machine = type("machine", (), {"RTC": lambda: machine, "datetime": lambda: (2000,) + (1,) * 7})
    sys.modules["machine"] = machine
    import asyncio

    import aiomqttc

    done.append(asyncio.Event())


async def on_message(client, topic, payload, retain):
    if payload:
        seen[0] += 1
    if seen[0] >= wanted[0]:
        done[0].set()


async def on_ping(client, sent, elapsed):
    if not sent:
        done[0].set()


def connect(port, name):
    client = aiomqttc.MQTTClient(client_id=name.decode(), server="127.0.0.1", port=port)
    client.on_message = on_message
    client.on_ping = on_ping
    if not asyncio.run(client.connect()):
        raise OSError("not connected")
    return client


def subscribe(client, topic, qos):
    async def main():
        await client.subscribe(topic.decode(), qos)
        while not client.subscriptions[topic.decode()]["confirmed"]:
            await asyncio.sleep_ms(1)

    asyncio.run(main())


def publish(client, n, qos=0):
    async def main():
        for _ in range(n):
            if not await client.publish(TOPICS[0], PAYLOAD, qos):
                raise OSError("not published")

    asyncio.run(main())


publish_burst = publish


def publish1(client, n):
    publish(client, n, 1)


def receive(client, n):
    async def main():
        wanted[0] = n
        done[0].clear()
        while seen[0] < n:
            await done[0].wait()
            done[0].clear()

    asyncio.run(main())


receive1 = receive


def ping(client, n):
    async def main():
        for _ in range(n):
            done[0].clear()
            await client.protocol.ping()
            await done[0].wait()

    asyncio.run(main())


def idle(client, n):
    async def main():
        for _ in range(n):
            await asyncio.sleep_ms(0)

    asyncio.run(main())


def qos1(client, ms):
    start = ticks_ms()
    count = [0]

    async def task():
        while since_ms(start) < ms:
            if await client.publish(TOPICS[0], PAYLOAD, 1):
                count[0] += 1

    async def main():
        await asyncio.gather(*[task() for _ in range(TASKS)])

    asyncio.run(main())
    return count[0]
