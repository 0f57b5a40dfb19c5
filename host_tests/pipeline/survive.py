"""Programs that must survive SIGKILL at any point; `points` kills them at one line after another.

As a program it is the one that is killed: it forks for each point, as long as one is reached.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import peer
from flatmq_tools.pipeline import delta, delta_files, durable, landing, log

# In which functions there is a point at every line. What only reads is left out.
_APPENDING = [
    "_locked", "_identity", "_recover", "_begin", "append", "_write", "sync", "_sync", "rotate",
    "_rotate", "trim", "close", "_close",
]  # fmt: skip
WHERE = {
    "appending": {log.__file__: frozenset(_APPENDING)},
    "landed": {
        log.__file__: frozenset(["trim"]),
        landing.__file__: frozenset(["__init__", "land"]),
        delta.__file__: frozenset(["add", "commit", "_commit"]),
        delta_files.__file__: frozenset(["write", "__exit__"]),
    },
}


def batch(first: int, count: int) -> bytes:
    return b"".join(
        peer.publish(b"t/%d" % (i % 3), b"%d" % i, qos=i % 3, pid=i % 65535 + 1)
        for i in range(first, first + count)
    )


def fill(writer: log.Writer, count: int) -> None:
    writer.append(batch(writer.next_offset, count), count, 1_700_000_000_000_000)


def appending(folder: Path, tell: Callable[[int], object]) -> None:
    """Append messages, and report what is synced as soon as it is."""
    with log.Writer(folder, segment_bytes=200) as writer:
        for i in range(4):
            fill(writer, 1)
            fill(writer, 2)
            if i % 2:
                writer.sync()
                tell(writer.synced)
            if i == 2:
                writer.rotate()
            if i == 3:
                writer.trim(8)


PREPARED = 10  # messages in it


def prepared(folder: Path) -> None:
    """A log of three segments, of which two no longer grow."""
    with log.Writer(folder) as writer:
        for count in (3, 4):
            fill(writer, count)
            writer.rotate()
        fill(writer, PREPARED - 7)


def landed(folder: Path, tell: Callable[[int], object]) -> None:
    """Land them."""
    with log.Writer(folder) as writer:
        work = landing.Landing(writer, str(folder.with_suffix(".out")))
        writer.rotate()
        tell(work.land())


def points(what: str, folder: Path, step: int = 1) -> Iterator[tuple[int, list[int]]]:
    """Kill `what` at each point, or one of so many, in folders that are numbered from 0.

    Yields `Popen.returncode`, and what was reported. The last one was not killed.
    """
    done = subprocess.run(
        [sys.executable, __file__, what, str(folder), str(step)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    for line in done.stdout.splitlines():
        status, told = json.loads(line)
        yield status, told


def _kill_at(what: str, point: int) -> Callable[[FrameType, str, Any], Any]:
    """Return a trace function that kills the process before that line."""
    left = point

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        if code.co_name not in WHERE[what].get(code.co_filename, ()):
            return None

        def line(_frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal left
            if event in ("line", "return"):
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            return line

        return line

    return enter


def main(what: str, parent: Path, step: int) -> None:
    """Print a line of JSON for each point: the status, and what was reported."""
    # What is written outlives the process, synced or not: there is no need to wait for the disk.
    log._sync = lambda _: None
    durable.path = lambda _: None
    os.fsync = lambda _: None
    for number in itertools.count():
        folder = parent / str(number)
        if what == "landed":
            prepared(folder)
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            ended = 1
            try:
                sys.settrace(_kill_at(what, number * step))
                work = {"appending": appending, "landed": landed}[what]
                work(folder, lambda value: os.write(writes, b"%d\n" % value))  # noqa: B023
                sys.settrace(None)
                ended = 0
            finally:
                os._exit(ended)
        os.close(writes)
        with open(reads) as pipe:
            told = [int(line) for line in pipe]
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status > 0:
            raise SystemExit(f"point {number * step}: ended with {status}")
        print(json.dumps([status, told]), flush=True)
        if not status:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
