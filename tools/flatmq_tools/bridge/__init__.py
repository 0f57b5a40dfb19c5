"""`flatmq bridge`: the way from a board's serial line to a broker."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..address import address
from ..plain import PlainConsole
from ..trust import Trust
from .pump import Pump

__all__ = ("Pump", "main")

_REFRESH = 0.25  # seconds between two looks at the figures


def readable(text: str) -> str:
    """Text without what could command a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text.replace("\t", "    "))


def counts(pump: Pump) -> str:
    """Return what has passed so far, in one line."""
    talk = pump.conversation
    return (
        f"up {talk.up:,} B · down {talk.down:,} B · {talk.frames:,} frames · {talk.bad} bad"
        f" · {talk.opens} connections, {talk.lost} lost"
    )


def figures(pump: Pump) -> str:
    """The state, and what has passed."""
    state = {"closed": "no connection", "opening": "connecting", "open": "connected"}
    return f"{state[pump.conversation.state] if pump.plugged else 'no port'} · {counts(pump)}"


async def _run(pump: Pump, live: Live | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, task.cancel)

    async def show() -> None:
        while live:
            live.update(Text(figures(pump), style="bold", no_wrap=True))
            await asyncio.sleep(_REFRESH)

    showing = loop.create_task(show())
    try:
        await pump.run()
    finally:
        showing.cancel()


def main(
    url: str,
    broker: str,
    *,
    baud: int = 115200,
    trust: Trust | None = None,
    console: Console | None = None,
) -> int:
    """Bridge until it is interrupted. Raises ToolError, TrustError, LineError."""
    host, port = address(broker, trust is not None)
    console = console or PlainConsole()

    def say(who: str, text: str) -> None:
        line = Text(f"{time.strftime('%H:%M:%S')} {who:>6} | ", style="dim")
        line.append(readable(text), style="not dim" if who == "board" else "")
        try:
            console.print(line, soft_wrap=True)
        except OSError:  # most likely a full disk: bytes are bridged all the same
            console.quiet = True
            console.print()  # forgets the line, which rich would keep and write again
            console.quiet = False

    if trust:
        trust.context()  # a file that cannot be used shows now
    live = Live(console=console, auto_refresh=True, transient=True)
    shown = console.is_terminal

    async def run() -> Pump:
        pump = Pump(url, baud, host, port, say, tls=trust.context if trust else None)
        with contextlib.suppress(asyncio.CancelledError):
            await _run(pump, live if shown else None)
        return pump

    with live if shown else contextlib.nullcontext():
        try:
            pump = asyncio.run(run())
        except KeyboardInterrupt:  # where there are no signal handlers
            return 0
    console.print(counts(pump), soft_wrap=True)
    return 0
