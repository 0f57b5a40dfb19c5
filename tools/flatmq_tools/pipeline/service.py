"""End a run as a service should: soon after a signal, and in one line if Java dies."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext, accumulators

LIMIT = 20.0
"""s from a signal to the end of the process, at most."""
START = 600.0
"""s that Spark and the queries may take to start."""
REST = 600.0
"""s that a run which ends without a signal may work off what is there, before it ends as after
one."""
DRAIN, FOLLOW, STOP, HEALTH = 4.0, 8.0, 12.0, 15.0
"""s after a signal until which messages are received; what follows from them is made; queries may
stop; the tables of health may be made."""
_HARD = 17.0  # s after a signal: whatever is still running is killed then
_LOOK = 0.1  # s
DEATH = 3.0
"""s from the first sign that Java has died until its exit status is known."""


class ServiceError(RuntimeError):
    """Spark's Java process has died; the text says how, and what to do."""


class Ending:
    """SIGTERM and SIGINT: the first asks for the end, the second raises KeyboardInterrupt.

    As a context manager it watches the clock. A run that has not ended `_HARD` s after a signal
    is ended by force, with all of its processes: nothing is lost by that, as the next run begins
    with what this one has not committed. The same happens to a run that has not started within
    START s, with exit status 1. `say` prints a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = threading.Event()
        self._say = say
        self._at = 0.0
        self._latest = math.inf
        self._begun = time.monotonic()
        self._started = threading.Event()
        self._over = threading.Event()
        self._forced = threading.Event()
        self._guard = threading.Thread(target=self._watch, name="ending", daemon=True)

    def __enter__(self) -> Ending:
        self.listen()
        self._guard.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._forced.is_set():  # what was raised here comes from that
            self._guard.join()
        self._over.set()

    def listen(self) -> None:
        """Handle the signals.

        Spark installs a handler for SIGINT when it starts: call this again then.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def started(self) -> None:
        """Note that from now on there is something to end in good order."""
        self._started.set()

    def limit(self) -> None:
        """Ask for the end in REST s, as a signal does."""
        self._latest = time.monotonic() + REST

    def _signalled(self, *_: Any) -> None:
        if self.asked.is_set():
            raise KeyboardInterrupt
        self._ask()

    def _ask(self) -> None:
        self._at = time.monotonic()
        self.asked.set()

    def past(self, seconds: float) -> bool:
        """Return whether so many seconds have passed since a signal; False without one."""
        return self.asked.is_set() and time.monotonic() - self._at >= seconds

    def _watch(self) -> None:
        while not self._over.wait(_LOOK):
            if not self._started.is_set():
                if self.asked.is_set():
                    self._force("ended before Spark had started: nothing was begun", 0)
                elif time.monotonic() - self._begun > START:
                    self._force(
                        f"Spark has not started within {START:,.0f} s: the machine is too busy, "
                        "or Java hangs. Start again",
                        1,
                    )
            elif self.asked.is_set():
                break
            elif time.monotonic() > self._latest:
                self._say(f"not done within {REST:,.0f} s: the next run does the rest")
                self._ask()
        if not self._over.wait(max(0.0, self._at + _HARD - time.monotonic())):
            self._force(
                f"ended after {_HARD:,.0f} s with a batch under way: the next run does it again", 0
            )

    def _force(self, text: str, status: int) -> None:
        self._forced.set()
        self._say(text)
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        sys.stderr.flush()
        os._exit(status)


class Java:
    """The Java process in which the running session's Spark is."""

    def __init__(self) -> None:
        gateway = SparkContext._gateway  # noqa: SLF001 - PySpark offers no other way
        self._process = getattr(gateway, "proc", None)
        self._parent = os.getppid()  # under spark-submit Java has started this process

    def ended(self) -> str | None:
        """Return how it has ended; None while it runs."""
        if self._process is None:
            return None if os.getppid() == self._parent else "for an unknown reason"
        status = self._process.poll()
        if status is None:
            return None
        if status >= 0:
            return f"with exit status {status}"
        number = -status
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        hint = ", as the kernel does when memory runs out" if number == signal.SIGKILL else ""
        return f"by {name}{hint}"

    def check(self, wait: float = 0.0) -> None:
        """Raise ServiceError if it has ended, or ends within `wait` s."""
        end = time.monotonic() + wait
        while True:
            how = self.ended()
            if how is not None:
                raise ServiceError(
                    f"Spark's Java process was ended {how}. Nothing is lost: start the run again, "
                    "and it goes on where this one was"
                )
            if time.monotonic() >= end:
                return
            time.sleep(_LOOK)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out the traceback of each thread that talks to Java: the run reports that end."""
    return "py4j" not in Path(record.pathname).parts


def quiet() -> None:
    """Keep tracebacks of the threads that talk to Java from the terminal."""
    logging.basicConfig(format="%(levelname)s: %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_py4j)
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = _handle_error


def _handle_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    """Handle errors as socketserver does, except when Java has closed the connection."""
    if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
        socketserver.BaseServer.handle_error(server, request, address)


def within(work: Callable[[], object], over: Callable[[], bool]) -> bool:
    """Do `work` in a thread until it is done, or until `over` returns True.

    Returns whether it is done; what it raises is raised here.
    """
    failed: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=do, name="work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
        if thread.is_alive() and over():
            return False
    if failed:
        raise failed[0]
    return True
