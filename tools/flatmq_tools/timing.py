"""Answer boards that ask for the time, as `flatmq.timesync` does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rich.console import Console

from flatmq.message import Message

from .desk_client import TURN_MS, follow, made, printable
from .trust import Trust

_MOST_DIGITS = 10  # of the number of a request


def main(
    host: str,
    port: int,
    user: str | None,
    seconds: float | None,
    trust: Trust | None = None,
    console: Console | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Answer until Ctrl-C, for so many seconds, or until `stop`; return 0.

    A board's name is printed with its first request. `user` and `trust` are as for
    `desk_client.made`. Raises DeskError and TrustError.
    """
    console = console or Console()
    client = made(host, port, user, trust, "time")
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
            console.print(f"{name} asks for the time", markup=False, highlight=False)

    end = None if seconds is None else time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        follow(client, ["dev/+/time/get"], answer, qos=0)
        while not stop() and (end is None or time.monotonic() < end):
            client.poll(TURN_MS)
    client.disconnect()
    return 0
