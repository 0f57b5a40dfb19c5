"""The parts of `aio` for CPython, where allocation does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aio import Client, Messages


class Turn(asyncio.Event):
    """An event that tasks await repeatedly."""

    def wake(self) -> None:
        """Let all waiting tasks check again."""
        self.set()
        self.clear()

    def park(self) -> None:
        """Do nothing: here a task awaits this object."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.wait().__await__()


def copier(size: int) -> Any:
    """Return None: slices may be allocated."""
    return None


def sleep_ms(t: int) -> Coroutine[Any, Any, None]:
    """Sleep for `t` milliseconds."""
    return asyncio.sleep(t / 1000)


def taking(messages: Messages, turn: Turn) -> Generator[Any, Any, Any]:
    """Wait until there is a message, and return it."""
    while True:
        try:
            next(messages)
        except StopIteration as found:
            return found.value
        yield from turn.__await__()


def acknowledgement(client: Client, pid: int, task: Any = None) -> Coroutine[Any, Any, None]:
    """Return a coroutine that waits until a message is acknowledged.

    The `task` that has called `publish` is the current one unless given.
    """
    with suppress(RuntimeError):  # no event loop runs yet
        task = task or asyncio.current_task()
    return _acknowledgement(client, pid, task)


async def _acknowledgement(client: Client, pid: int, task: Any) -> None:
    if not pid:
        await asyncio.sleep(0)  # a loop that publishes must let other tasks run
        return
    client.publishing.append(task)
    try:
        while client.waits(pid):
            await client.turn
    finally:
        e = client.end(pid, task)
    if e is not None:
        raise e
