"""Run one scenario of asyncio: `aio_env.py FUNCTION key=value ...`, on either interpreter."""

import asyncio
import sys

import aio_scenarios

import scenario_env
from flatmq.aio import Client
from flatmq.port import ticks_add, ticks_diff, ticks_ms


class Env(scenario_env.Env):
    """Helpers that wait as tasks do; `ask` blocks the event loop."""

    def client(self, name, kind=Client, **options):
        """A client that does not run, with buffers as small as the scenarios allow."""
        options.setdefault("rx_size", 256)
        return super().client(name, kind, **options)

    async def soon(self, awaitable):
        """Return what a coroutine returns; fail if that takes too long."""
        return await asyncio.wait_for(awaitable, scenario_env.ANSWER_MS / 1000)

    async def until(self, what, condition):
        """Wait until a condition holds; fails naming `what`."""
        deadline = ticks_add(ticks_ms(), scenario_env.ANSWER_MS)
        while not condition():
            if ticks_diff(deadline, ticks_ms()) < 0:
                raise AssertionError("waited for " + what)
            await asyncio.sleep(0.002)

    async def granted(self, *queues):
        """Wait for the SUBACK of each."""
        for queue in queues:
            await self.until("SUBACK", lambda q=queue: q.subscription.granted is not None)


scenario = getattr(aio_scenarios, sys.argv[1])
options = dict(argument.split("=", 1) for argument in sys.argv[2:])
scenario_env.start(lambda env: asyncio.run(scenario(env)), Env(options))
