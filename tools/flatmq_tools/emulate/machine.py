"""The child process of `flatmq emulate`: `python -m flatmq_tools.emulate.machine ORDER`.

ORDER is an Order as JSON. The child prints the events of the board (events.py), and ends when
standard input closes, as it does when the parent stops or has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import traceback

from ..errors import ToolError
from .order import Order


async def run(order: Order) -> None:
    """Run the machine until standard input closes."""
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch_parent() -> None:
        sys.stdin.buffer.read()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=watch_parent, daemon=True).start()
    if order.qemu:
        from . import qemu

        await qemu.run(order, done)
    else:
        from . import rp2040

        await rp2040.run(order, done)


if __name__ == "__main__":
    try:
        asyncio.run(run(Order.read(sys.argv[1])))
    except ToolError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # the thread that waits for the parent has no end
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
