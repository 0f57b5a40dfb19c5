"""Commands as processes that are watched from outside: by the demo, and by rigs and tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from . import tables

_LOOK = 0.1  # s
_TAIL = 60  # lines
_PIPELINE = (sys.executable, "-m", "flatmq_tools.cli", "pipeline")


class CommandError(RuntimeError):
    """A command has ended, or does not do what it should; the text has what it said."""


def row_count(table: Path | str) -> int:
    """Return the number of rows of a table; 0 if it does not exist yet."""
    found = tables.opened(table)
    return 0 if found is None else int(found.count())


def environment() -> dict[str, str]:
    """Return the environment in which Python finds what it finds here."""
    path = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def family(pid: int) -> list[int]:
    """The process, and all that descend from it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def command_line(pid: int) -> str:
    """The process's program and arguments; empty where there is none."""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return str(psutil.Process(pid).status()) != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(*pids: int) -> None:
    """End processes with SIGKILL, if they are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait(
    what: str | Callable[[], str],
    ready: Callable[[], object],
    patience: float,
    moves: Callable[[], object] = lambda: None,
    look: float = _LOOK,
) -> None:
    """Wait until `ready` returns something true; raise CommandError with `what` if it does not.

    `what` may be a function, called only then. The patience starts again whenever the result
    of `moves` changes.
    """
    seen, since = moves(), time.monotonic()
    while not ready():
        if (now := moves()) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > patience:
            text = what if isinstance(what, str) else what()
            raise CommandError(f"after {patience:g} s: {text}")
        time.sleep(look)


class Command:
    """A command of `flatmq pipeline`, whose process may be started again.

    log      the file that what it says is appended to
    nice     how much lower its priority is
    program  what is started instead of `flatmq pipeline`
    options  those of subprocess.Popen
    """

    def __init__(
        self, log: Path, *arguments: object, nice: int = 0, program: Sequence[str] = _PIPELINE,
        **options: Any,
    ) -> None:  # fmt: skip
        self._log = log
        self._arguments = ["nice", "-n", str(nice)] if nice else []
        self._arguments += [*program, *map(str, arguments)]
        self._options = {"env": environment(), **options}
        self.start()

    def start(self) -> None:
        """Start it, as it was started before."""
        with self._log.open("ab") as log:
            self._begin = log.tell()
            self.process = subprocess.Popen(
                self._arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._options
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def over(self) -> bool:
        """True if it has ended."""
        return self.process.poll() is not None

    def words(self) -> str:
        """Return what it has said since its start."""
        return self._log.read_bytes()[self._begin :].decode(errors="replace")

    def tail(self) -> str:
        """Return the end of that, for an error."""
        return "\n".join(self.words().splitlines()[-_TAIL:])

    def failure(self, what: str) -> CommandError:
        """Return an error that has that, and the end of what it has said."""
        return CommandError(f"{self.tail()}\n{self._log.stem} {what}")

    def check(self) -> None:
        """Raise CommandError if it has ended."""
        if self.over:
            raise self.failure("ended by itself")

    def until(self, ready: Callable[[], object], patience: float) -> None:
        """Wait until that is so; raise CommandError if it takes too long or the command ends."""

        def looked() -> object:
            self.check()
            return ready()

        wait(lambda: str(self.failure("is not ready")), looked, patience)

    def find(self, word: str) -> int | None:
        """Return a descendant whose command line has that word."""
        return next((pid for pid in family(self.pid)[1:] if word in command_line(pid)), None)

    def end(self, patience: float) -> float:
        """End it as an administrator would; return the seconds that this took.

        Raises CommandError if it fails.
        """
        since = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.wait(patience)
        return time.monotonic() - since

    def wait(self, patience: float) -> None:
        """Wait for its end. Raises CommandError if it fails, or takes longer."""
        wait(lambda: str(self.failure("does not end")), lambda: self.over, patience)
        if self.process.returncode:
            raise self.failure(f"ended with status {self.process.returncode}")

    def stop(self) -> None:
        """Kill what is left of it."""
        kill(*reversed(family(self.pid)))
        self.process.wait()
