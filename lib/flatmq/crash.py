"""Keep the reason why a program ended in a file, and publish it at the next connection.

    from flatmq import crash

    def main():
        ...
        crashes = crash.Crashes(client, b"dev/pico-1/crash")
        while True:
            client.poll(100)
            crashes.poll()

    crash.guard(main)

What is published is in docs/crashes.md. The text of an exception is in it: put no secrets there.
Set `crash.version` to the version of your program.
"""

import gc
import json
import os
import sys
import time
from io import StringIO

import flatmq

from . import port
from .every import Every
from .port import MICROPYTHON, const, load, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import Client

_DESK = const(("darwin", "linux", "win32"))
PATH = "crash.json" if sys.platform in _DESK else "/crash.json"
version = "flatmq " + flatmq.__version__

_TRACE = const(1000)  # bytes of a traceback
_LARGEST = const(4096)  # bytes of a record: a larger one is not from here
_RESERVE = const(2048)  # bytes; with 1,536, a Pico W could not write the record
_GAP = const("  ...\n")
_ASIDE = const(-1)  # instead of a packet identifier: maybe the client gave up the message
_YEAR = const(2025)  # a clock that shows an earlier year has not been set

_kept: "Any" = None  # the exception that was kept last
_reporter: "Any" = None  # the Crashes that was made last

if MICROPYTHON:
    print_exception: "Any" = sys.print_exception  # type: ignore[attr-defined,unused-ignore]
else:

    def print_exception(error, out=None):
        """Print a traceback, as `sys.print_exception` of MicroPython does."""
        from traceback import print_exception

        print_exception(type(error), error, error.__traceback__, file=out)


def keep(error: BaseException, path: str = PATH) -> bool:
    """Write an exception and its traceback to a file, for the next connection.

    A record that is already there is replaced, and counted in the new one. An exception that was
    kept last is not kept again. Returns whether the file has it. If the flash or the heap is full,
    that is False: nothing is raised, and an earlier record stays.
    """
    global _kept
    if error is _kept:
        return True
    if _reporter:
        _reporter.reserve = None
    gc.collect()
    for text in (_traceback, _name):
        try:
            record = {"cause": "exception", "trace": text(error)}
            if _reporter:
                _reporter.sample()
                record["uptime"] = _reporter.uptime
                if MICROPYTHON:
                    record["heap"] = _reporter.least
            else:
                record["uptime"] = port.ticks_ms() // 1000
            record = _write(record, path)
        except Exception:  # a full heap, or an exception that cannot be printed
            gc.collect()
            continue
        if not record:
            return False
        _kept = error
        if _reporter and _reporter.path == path:
            try:  # noqa: SIM105 (there is no contextlib on a board)
                _reporter.take(record)
            except MemoryError:  # `poll` does it, or the next start
                pass
        return True
    return False


def guard(function: "Callable[[], Any]", pause: int = 5) -> "Any":
    """Call a function, which is a whole program. If it raises, keep why, and reset the board.

    Before the reset the traceback is printed, and `pause` seconds pass in which Ctrl-C leads to
    the REPL. KeyboardInterrupt and SystemExit from `function` are raised as without `guard`. On a
    computer, which has no reset, the program ends with status 1.
    """
    reset: Any = None  # found now, as the heap may be full later
    try:
        import machine  # type: ignore[import-not-found,unused-ignore]

        reset = getattr(machine, "reset", None)
    except ImportError:
        pass
    try:
        return function()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # CancelledError of asyncio is no Exception
        try:
            keep(error)
            print_exception(error)
        except Exception:  # it cannot be printed
            pass
    print("reset in", pause, "s; Ctrl-C stops that")
    time.sleep(pause)
    if reset:
        reset()
    sys.exit(1)


class Crashes:
    """Publishes the record that `keep` has written, retained and at QoS 1, on `topic`.

    A broker without these has it at QoS 0, or not retained. The file is removed once the broker
    has acknowledged the record. If the client sets it aside, it is published again in a minute.
    `watchdog`: the watchdog caused the reset before this start; without a record, that is
    published instead. `path` is that of the file.

    `uptime` is the time in seconds since it was made. `least` is the least heap in bytes that was
    free, after a collection; None on CPython. Both are in the record of a later crash. They are
    brought up to date once a minute. `reserve` is memory for `keep`, for the case that a full heap
    is what ends the program.

    Allocates nothing while there is no record.
    """

    _id: "Any"
    dropped: int  # what the client had set aside before it was handed the record

    def __init__(
        self, client: "Client", topic: "bytes | str", watchdog: bool = False, path: str = PATH
    ) -> None:
        global _reporter
        self.client = client
        self.topic = topic
        self.path = path
        self._minute = Every(60000)
        self._since = port.ticks_ms()
        self.uptime = 0
        self.least: int | None = None
        self.reserve: bytearray | None = None
        record = None
        try:
            record = _read(path)
            self.reserve = bytearray(_RESERVE)
        except (MemoryError, OSError):  # `poll` tries again
            pass
        if watchdog and record is None and self.reserve:
            record = {"cause": "watchdog", "count": 1, "version": version}
            _write(record, path)  # if not, it is published unless the power is cut before
        self.take(record)
        _reporter = self

    def poll(self) -> None:
        """Do what is due. Never blocks, but a collection once a minute.

        ValueError for a topic that `publish` does not accept.
        """
        if self._minute.due():
            self.sample()
            if self._id == _ASIDE:
                self._id = None
            if self.reserve is None:  # the program went on after an exception
                try:
                    if not self.json:  # `keep` may have had no memory to pass it on
                        self.take(_read(self.path))
                    self.reserve = bytearray(_RESERVE)
                except (MemoryError, OSError):  # it is tried again in a minute
                    pass
        if self.json:
            self._step()

    def _step(self):
        c = self.client
        if self._id is None:
            if c.connected:
                self._id = load("crash_publish", "").publish(self)
        elif self._id >= 0 and not (c.awaits(self._id) if self._id else c.pending):
            if c.stats.dropped != self.dropped:
                self._id = _ASIDE
                return
            _remove(self.path)  # first: without memory, the next poll does it
            self.take(None)

    def sample(self) -> None:
        """Bring `uptime` and `least` up to date."""
        n = ticks_diff(port.ticks_ms(), self._since) // 1000
        self.uptime += n
        self._since = ticks_add(self._since, n * 1000)
        if MICROPYTHON:
            gc.collect()
            n = gc.mem_free()  # type: ignore[attr-defined,unused-ignore]
            if self.least is None or n < self.least:
                self.least = n

    def take(self, record: "dict[str, Any] | None") -> None:
        """Publish a record, instead of an earlier one that is not acknowledged yet."""
        self.json: Any = None  # the record, until it is acknowledged
        self._id = None  # its packet identifier, once it was published
        if record:
            self.json = json.dumps(record).encode()


def _read(path):
    """Return the record in a file. None if it is none: then it is removed. OSError."""
    try:
        size = os.stat(path)[6]
    except OSError:  # it is not there
        return None
    try:
        if size <= _LARGEST:
            with open(path) as f:
                record = json.load(f)
            if isinstance(record, dict):
                return record
    except (ValueError, RuntimeError):  # of some other program, or after a fault of the flash
        pass
    print(path, "is damaged")
    _remove(path)
    return None


def _write(record, path):
    """Write a record so that a power cut leaves this one or the earlier one.

    Returns it, or None if the flash does not take it.
    """
    try:
        count = (_read(path) or {"count": 0}).get("count", 1)
    except OSError:
        count = 0
    record["count"] = count + 1 if type(count) is int else 1
    record["version"] = version
    now = time.gmtime()
    if now[0] >= _YEAR:
        record["time"] = int(time.time())
        if time.gmtime(0)[0] == 2000:  # the epoch of some ports
            record["time"] += 946684800
    new = path + ".new"
    try:
        with open(new, "w") as f:
            f.write(json.dumps(record))
        os.rename(new, path)
    except OSError:
        _remove(new)
        return None
    return record


def _remove(path):
    try:  # noqa: SIM105 (there is no contextlib on a board)
        os.remove(path)
    except OSError:
        pass


def _traceback(error):
    out = StringIO()
    print_exception(error, out)
    text = bytearray(cut(out.getvalue().strip(), _TRACE).encode())
    for i in range(len(text)):
        if text[i] > 126 or (text[i] < 32 and text[i] != 10):
            text[i] = 63  # a question mark
    return text.decode()


def _name(error):
    return type(error).__name__


def cut(text: str, limit: int) -> str:
    """Shorten a traceback: its first line, the innermost frames, and the exception are left."""
    if len(text) <= limit:
        return text
    at = text.find("\n", text.rfind('\n  File "') + 1) + 1
    if not MICROPYTHON:
        while text[at : at + 1] == " ":  # the source
            at = text.find("\n", at) + 1
    if not at:
        return text[:limit]
    error = text[at : at + limit // 3]
    head = text.find("\n") + 1
    room = limit - len(error) - head - len(_GAP)
    frames = text[head:at]
    if len(frames) > room:
        frames = frames[len(frames) - room :]
        frames = _GAP + frames[frames.find("\n") + 1 :]
    return text[:head] + frames + error
