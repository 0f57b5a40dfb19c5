"""Two asyncio tasks, each with its own subscription: a valve and a lamp.

Needs `mpremote mip install build/mip/aio.json` on a board; runs on a computer as it is.
"""

import asyncio

from flatmq.aio import Client


async def valve(client):
    """Open the valve while the target is above 20 degrees."""
    async with client.subscribe(b"attic/target", qos=1) as targets:
        async for target in targets:
            state = b"open" if (target.number() or 0) > 20 else b"closed"
            await client.publish(b"attic/valve", state, qos=1, retain=True)


async def lamp(client):
    """Switch the lamp, and publish its state."""
    async with client.subscribe(b"attic/lamp/set", qos=1) as orders:
        async for order in orders:
            if order.is_payload(b"on") or order.is_payload(b"off"):
                await client.publish(b"attic/lamp", order.payload, qos=1, retain=True)


async def main():
    """Run both until the program is stopped. A task that waits does not hold up the other."""
    async with Client(b"attic", "192.168.1.10") as client:
        await asyncio.gather(valve(client), lamp(client))


asyncio.run(main())
