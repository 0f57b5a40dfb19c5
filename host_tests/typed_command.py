"""A command that somebody types, reads, and ends with Ctrl-C, and a serial line for it."""

import os
import pty
import signal
import subprocess
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

from flatmq_tools import cli

PATIENCE = 300  # seconds for a command, on a busy machine


def flatmq(*words: object) -> Result:
    """Run a command that ends by itself, in this process and in a wide terminal."""
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(cli.main, list(map(str, words)), catch_exceptions=False)


def said(*words: object) -> str:
    """Return what a command prints that ends well."""
    done = flatmq(*words)
    assert done.exit_code == 0, done.output
    return done.output


@contextmanager
def serial_line() -> Iterator[tuple[int, str]]:
    """A serial line: the board's end, and the device at the desk's end."""
    board, desk = pty.openpty()
    tty.setraw(desk)
    try:
        yield board, os.ttyname(desk)
    finally:
        os.close(board)
        os.close(desk)


@contextmanager
def running(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in `folder` during the block, and kill it if it runs at its end."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        watch = threading.Timer(PATIENCE, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


@contextmanager
def at_work(command: Callable[..., object], *words: object) -> Iterator[None]:
    """Run a command in a thread of this process; its last argument says when the block is over."""
    over = threading.Event()
    thread = threading.Thread(target=command, args=(*words, over.is_set))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def until(
    said: str, process: subprocess.Popen[str], each: Callable[[str], None] | None = None
) -> None:
    """Read what the command prints up to a line with that text; `each` is called with each."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if each is not None:
            each(line)
        if said in line:
            return
    raise AssertionError("".join(lines))


def when(ready: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Return once that is so; the command must not end before."""
    end = time.monotonic() + PATIENCE
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def interrupt(process: subprocess.Popen[str]) -> None:
    """End the command with Ctrl-C; its status must be 0."""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, rest
