"""The parts of `aio` for CPython, where allocation does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import Client


class Turn(asyncio.Event):
    """An event that tasks await repeatedly."""

    def wake(self) -> None:
        """Let all waiting tasks check again."""
        self.set()
        self.clear()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.wait().__await__()


def copier(size: int) -> Any:
    """Return None: slices may be allocated."""
    return None


def sleep_ms(t: int) -> Coroutine[Any, Any, None]:
    """Sleep for `t` milliseconds."""
    return asyncio.sleep(t / 1000)


def taking(look: Callable[[], Any], turn: Turn) -> Generator[Any, Any, Any]:
    """Wait until `look` returns something, and return its `value`."""
    while True:
        found = look()
        if found is not None:
            return found.value
        yield from turn.__await__()


async def acknowledgement(client: Client, packet_id: int) -> None:
    """Wait until a message is acknowledged."""
    task = asyncio.current_task()
    if not client.begin(packet_id, task):
        await asyncio.sleep(0)  # a loop that publishes must let other tasks run
        return
    try:
        while client.waits(packet_id):
            await client.turn
    finally:
        e = client.end(packet_id, task)
    if e is not None:
        raise e
