"""The environment of an asyncio scenario, on both interpreters; see scenario_env.py."""

import asyncio
import sys

from flatmq import MQTTError
from flatmq.aio import Client
from flatmq.port import ticks_add, ticks_diff, ticks_ms

ANSWER_MS = 15000  # how long any one step may take; far above what a loaded machine needs


class Env:
    """The broker's address, and helpers that wait, compare and ask."""

    MQTTError = MQTTError

    def __init__(self, options):
        self.host = options["host"]
        self.port = int(options["port"])
        self.token = options["token"].encode()
        self._version = int(options["version"])

    def name(self, text):
        """A topic (bytes) that no other run uses."""
        return self.token + b"/" + text

    def client(self, name, **options):
        """A client that does not run, with buffers as small as the scenarios allow."""
        options.setdefault("tx_size", 512)
        options.setdefault("rx_size", 256)
        options.setdefault("retry_ms", 20)
        options.setdefault("retry_max_ms", 100)
        options.setdefault("version", self._version)
        return Client(self.token + b"-" + name, self.host, self.port, **options)

    async def soon(self, awaitable):
        """Return what a coroutine returns; fail if that takes too long."""
        return await asyncio.wait_for(awaitable, ANSWER_MS / 1000)

    async def until(self, what, condition):
        """Wait until a condition holds; fails naming `what`."""
        deadline = ticks_add(ticks_ms(), ANSWER_MS)
        while not condition():
            if ticks_diff(deadline, ticks_ms()) < 0:
                raise AssertionError("waited for " + what)
            await asyncio.sleep(0.002)

    async def granted(self, *queues):
        """Wait for the SUBACK of each."""
        for queue in queues:
            await self.until("SUBACK", lambda q=queue: q.subscription.granted is not None)

    def equal(self, got, wanted, what):
        """Fail, showing both values, if they differ."""
        if got != wanted:
            raise AssertionError(what + ": got " + repr(got) + ", wanted " + repr(wanted))

    def ask(self, *words):
        """Have the test do something outside of this process; blocks the event loop."""
        print("@ask", *words)
        return sys.stdin.readline().strip()


async def collect(queue, into, count, pause=0.0, close=True):
    """Take that many messages, as (topic, payload, qos, retain)."""
    async for m in queue:
        into.append((m.topic, m.payload, m.qos, m.retain))
        if pause:
            await asyncio.sleep(pause)
        if len(into) >= count:
            break
    if close:
        queue.close()


async def cancelled(task):
    """Cancel a task, and wait for its end. Returns whether it was cancelled."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def main():
    """Run the scenario that the command line names."""
    if hasattr(sys.stdout, "reconfigure"):  # CPython holds back what goes to a pipe
        sys.stdout.reconfigure(line_buffering=True)
    scenario = getattr(__import__("aio_scenarios"), sys.argv[1])
    options = dict(argument.split("=", 1) for argument in sys.argv[2:])
    asyncio.run(scenario(Env(options)))
    print("@end")
