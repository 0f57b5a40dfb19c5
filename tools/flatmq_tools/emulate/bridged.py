"""A board without a radio: `flatmq bridge` between its serial line and the broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from ..bridge import Pump
from ..ports import LOOPBACK


class Bridge:
    """A bridge in a thread of its own.

    say: called in that thread with a line, ("board", text) or ("bridge", text).
    """

    def __init__(
        self, line: int, broker: tuple[str, int], say: Callable[[str, str], None]
    ) -> None:
        self._loop = asyncio.new_event_loop()
        url = f"socket://{LOOPBACK}:{line}"
        self._task = self._loop.create_task(Pump(url, 115200, *broker, say).run())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(asyncio.wait([self._task]))
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def stop(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
