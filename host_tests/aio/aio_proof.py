"""Heap that a client requests while tasks wait for it: `aio_proof.py OPERATION`, on MicroPython.

An operation is done over and over: first counted, then with the heap locked. The last line has,
per round, the bytes that were requested without those of asyncio's own loop, which has the frame
of a function on the heap (micropython.mem_total); the bytes that are in use afterwards
(gc.mem_alloc, with the collector off); and how often anything failed with the heap locked. The
broker is a script that allocates nothing.
"""

import asyncio
import gc
import sys

import micropython

from flatmq.aio import Client, Turn
from scripted_link import Link

ROUNDS = 50
TURNS = 10000  # of the event loop until an answer is given up


class Loop:
    """The part of asyncio that waits; `own` counts what it requests."""

    def __init__(self):
        self.own = 0
        self.queue = asyncio.core._io_queue
        self.wait = self.queue.wait_io_event
        self.queue.wait_io_event = self.counted

    def counted(self, dt):
        before = micropython.mem_total()
        self.wait(dt)
        self.own += micropython.mem_total() - before


class Meter:
    """Counts what is allocated between `resume` and `pause`."""

    def __init__(self):
        self.loop = Loop()
        self.locked = False
        self.asked = self.kept = 0
        self.total = self.alloc = 0

    def resume(self):
        """From here on it counts."""
        if self.locked:
            micropython.heap_lock()
        else:
            self.alloc = gc.mem_alloc()
            self.total = micropython.mem_total() - self.loop.own

    def pause(self):
        """Up to here."""
        if self.locked:
            micropython.heap_unlock()
        else:
            self.asked += micropython.mem_total() - self.loop.own - self.total
            self.kept += gc.mem_alloc() - self.alloc


class Bench:
    """A client that is connected and subscribed to `t`.

    One task takes its messages, and one acknowledges what it publishes.
    """

    def __init__(self):
        self.meter = Meter()
        self.link = Link()
        self.client = Client(b"proof", link=self.link, tx_size=512, rx_size=256, keepalive=0)
        self.seen = 0
        self.qos = 0  # of the message to be acknowledged
        self.asks = Turn()
        self.ack = bytearray((0x40, 2, 0, 0))

    async def start(self):
        """Connect, subscribe, and start the tasks."""
        core, link = self.client.core, self.link
        self.tasks = [asyncio.create_task(self.client.run(5))]
        await self.until(lambda: core.state == "greeting")
        await self.until(link.took_any)
        link.feed(b"\x20\x02\0\0")
        await self.client.connected()
        self.queue = self.client.subscribe(b"t", qos=2)
        await self.until(link.took_any)
        link.feed(b"\x90\x03" + bytes((link.identifier(2) >> 8, link.identifier(2) & 255, 2)))
        await self.until(lambda: self.queue.subscription.granted)
        link.swallows = True
        self.tasks += [asyncio.create_task(self.read()), asyncio.create_task(self.acknowledge())]
        await self.until(self.asks.waiting.peek)

    async def until(self, condition):
        for _ in range(TURNS):
            if condition():
                return
            await asyncio.sleep_ms(1)
        raise AssertionError("waited for too long")

    async def read(self):
        """Take messages."""
        async for m in self.queue:
            if m.is_topic(b"t") and m.number() == 12345:
                self.seen += 1

    async def acknowledge(self):
        """Acknowledge what is published, when that is asked for."""
        core = self.client.core
        while True:
            await self.asks
            while not core.pending:
                await asyncio.sleep_ms(0)
            self.ack[2] = core.last_id >> 8
            self.ack[3] = core.last_id & 255
            if self.qos == 2:
                self.ack[0] = 0x50
                before = self.link.swallowed
                self.link.feed(self.ack)
                while self.link.swallowed == before:  # until PUBREL
                    await asyncio.sleep_ms(0)
                self.ack[0] = 0x70
            else:
                self.ack[0] = 0x40
            self.link.feed(self.ack)


async def idle(bench, rounds):
    """A while in which nothing happens."""
    for _ in range(rounds):
        bench.meter.resume()
        await asyncio.sleep_ms(30)
        bench.meter.pause()


async def _receive(bench, rounds, packet, packet_id=0):
    """A message, and its PUBREL at QoS 2."""
    link = bench.link
    for _ in range(rounds):
        seen = bench.seen + 1
        before = link.swallowed
        bench.meter.resume()
        link.feed(packet)
        while bench.seen != seen:
            await asyncio.sleep_ms(1)
        if packet_id:
            link.feed(b"\x62\x02\0\7")
            while link.swallowed != before + 8:  # PUBREC and PUBCOMP
                await asyncio.sleep_ms(1)
        bench.meter.pause()


async def _publish(bench, rounds, qos):
    """A message that is sent, and the wait for its acknowledgement."""
    link = bench.link
    for _ in range(rounds):
        before = link.swallowed
        bench.meter.resume()
        if qos:
            bench.qos = qos
            bench.asks.wake()
        await bench.client.publish(b"t", b"12345", qos)
        bench.meter.pause()
        if link.swallowed == before or bench.client.core.pending:
            raise AssertionError("not sent")


async def held(bench, rounds):
    """A while in which a queue is full and the client reads nothing."""
    queue = bench.client.subscribe(b"held", qos=1, queue=1)
    received = bench.client.core.stats.received + 1
    bench.link.feed(b"\x32\x0d\0\4held\0\x0812345")
    await bench.until(lambda: bench.client.core.stats.received == received)
    bench.link.feed(b"\x32\x0d\0\4held\0\x0812345")
    await bench.until(lambda: bench.client.held is queue)
    await idle(bench, rounds)
    queue.close()
    await bench.until(lambda: bench.client.held is None and not bench.client.closing)


async def waits_for_room(bench, rounds):
    """A while in which messages wait for acknowledgements, and one for room."""
    core = bench.client.core
    tasks = []
    for _ in range(core.inflight + 1):
        tasks.append(asyncio.create_task(bench.client.publish(b"t", b"1", 1)))
    await bench.until(lambda: len(bench.client.publishing) == len(tasks))
    await idle(bench, rounds)
    for task in tasks:
        task.cancel()
    await bench.until(lambda: not bench.client.publishing)
    last = core.last_id
    for i in range(core.inflight):
        core.drop((last - i - 1) % 65535 + 1)
    await bench.until(lambda: not core.pending)


OPERATIONS = {
    "idle": idle,
    "receive_qos0": lambda bench, rounds: _receive(bench, rounds, b"\x30\x08\0\1t12345"),
    "receive_qos1": lambda bench, rounds: _receive(bench, rounds, b"\x32\x0a\0\1t\0\x0712345"),
    "receive_qos2": lambda bench, rounds: _receive(bench, rounds, b"\x34\x0a\0\1t\0\x0712345", 7),
    "publish_qos0": lambda bench, rounds: _publish(bench, rounds, 0),
    "publish_qos1": lambda bench, rounds: _publish(bench, rounds, 1),
    "publish_qos2": lambda bench, rounds: _publish(bench, rounds, 2),
    "held": held,
    "waits_for_room": waits_for_room,
}


async def main():
    bench = Bench()
    meter = bench.meter
    await bench.start()
    operation = OPERATIONS[sys.argv[1]]
    await operation(bench, 8)  # as many as there are places for messages, and more
    meter.asked = meter.kept = failed = 0
    gc.collect()
    gc.disable()
    await operation(bench, ROUNDS)
    asked, kept = meter.asked, meter.kept
    gc.enable()
    gc.collect()
    meter.locked = True
    try:
        await operation(bench, ROUNDS)
    except MemoryError:
        meter.pause()
        failed = 1
    print("SEEN", asked / ROUNDS, kept / ROUNDS, failed)


asyncio.run(main())
