"""Answer boards that ask for the time, as `flatmq.timesync` does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console

from flatmq.message import Message

from .desk_client import Desk, follow, printable, turns
from .plain import PlainConsole

_MOST_DIGITS = 10  # of the number of a request


def main(
    desk: Desk,
    seconds: float | None,
    console: Console | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Answer until Ctrl-C, for so many seconds, or until `stop`; return 0.

    A board's name is printed with its first request. Raises ToolError and TrustError.
    """
    console = console or PlainConsole()
    client = desk.client("time")
    boards: set[str] = set()

    def answer(topic: str, message: Message) -> None:
        number = message.payload
        if message.retain or not number.isdigit() or len(number) > _MOST_DIGITS:
            return
        now = time.time_ns() // 1_000_000
        client.publish(topic.removesuffix("/get"), b"%b %d %d" % (number, now // 1000, now % 1000))
        name = printable(topic.split("/")[1])
        if name not in boards:
            boards.add(name)
            with contextlib.suppress(OSError):  # a full disk, for example: the others need answers
                console.print(f"{name} asks for the time")

    with contextlib.suppress(KeyboardInterrupt):
        follow(client, ["dev/+/time/get"], answer, qos=0)
        for _ in turns(client, seconds, stop):
            pass
    client.disconnect()
    return 0
