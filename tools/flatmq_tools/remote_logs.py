"""Show what a board prints, which it publishes while somebody listens."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TextIO

from flatmq.message import Message

from .desk_client import Desk, follow, printable, turns
from .plain import PlainConsole

LISTEN_S = 10  # asked for at a time
_AGAIN_S = 2.0
_HEAD = 11  # bytes: the number of bytes printed before this piece, and a space
_WRAP = 1 << 30


class Printed:
    """The pieces of a log: `text` returns one, after what is missing before it."""

    def __init__(self) -> None:
        self._next: int | None = None

    def text(self, payload: bytes) -> str:
        """Return a piece as text; it moves no cursor."""
        head, body = payload[:_HEAD], payload[_HEAD:]
        if not (len(head) == _HEAD and head[:-1].isdigit()):
            return f"[not a piece of a log: {payload[:40]!r}]\n"
        at = int(head)
        missing = "" if self._next is None else self._gap(at)
        self._next = (at + len(body)) % _WRAP
        lines = body.decode(errors="replace").replace("\r\n", "\n").replace("\t", "    ")
        return missing + printable(lines)

    def _gap(self, at: int) -> str:
        gap = (at - (self._next or 0)) % _WRAP
        if not gap:
            return ""
        return f"[{gap} bytes are missing]\n" if gap < _WRAP // 2 else "[the board was reset]\n"


def main(
    desk: Desk,
    board: str,
    seconds: float | None,
    out: TextIO | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Show what `board` prints until Ctrl-C, for so many seconds, or until `stop`; return 0.

    Raises ToolError and TrustError.
    """
    out = out or sys.stdout
    printed = Printed()
    client = desk.client("logs")

    def take(_topic: str, message: Message) -> None:
        out.write(printed.text(message.payload))
        out.flush()

    with contextlib.suppress(KeyboardInterrupt):
        follow(client, [f"dev/{board}/log"], take, qos=0)
        PlainConsole(stderr=True).print(f"{board}: Ctrl-C ends it", style="dim")
        due = 0.0
        for _ in turns(client, seconds, stop):
            if time.monotonic() >= due:
                due = time.monotonic() + _AGAIN_S
                client.publish(f"dev/{board}/log/listen", str(LISTEN_S))
    client.disconnect()
    return 0
