"""Show what a board prints, over its resets, until Ctrl-C."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import BinaryIO

import serial
from rich.console import Console

from . import connected
from .bridge.line import watch
from .errors import ToolError
from .plain import PlainConsole

_BAUD = 115200
_LOOK = 0.2  # seconds until it looks whether it is to stop
_AGAIN = 0.3  # seconds between two tries to open the port


def main(
    port: str | None,
    out: BinaryIO | None = None,
    console: Console | None = None,
    stop: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> int:
    """Copy what a board prints to `out`, by default standard output.

    `port` is None for the only connected board. If the board goes away, wait for it. Returns 0
    after Ctrl-C, after so many seconds, or when `stop` returns True. Raises ToolError if the port
    cannot be opened at first.
    """
    out = out or sys.stdout.buffer
    console = console or PlainConsole(stderr=True)
    address = connected.choose(port)
    try:
        line = _opened(address)
    except (OSError, ValueError) as error:
        raise ToolError(
            f"{address}: cannot be opened ({error}). Is the board plugged in, and is no other "
            "program using the port?"
        ) from error
    console.print(f"{address}: Ctrl-C ends it", style="dim")
    end = time.monotonic() + (math.inf if seconds is None else seconds)

    def over() -> bool:
        return stop() or time.monotonic() >= end

    try:
        while not over():
            try:
                data = line.read(max(1, line.in_waiting))
            except Exception:  # pyserial lets much through when a device goes
                line.close()
                console.print("the board is gone; waiting for it", style="dim")
                found = _again(address, over)
                if found is None:
                    return 0
                line = found
                continue
            out.write(data)
            out.flush()
    except KeyboardInterrupt:
        console.print()
    finally:
        line.close()
    return 0


def _opened(address: str) -> serial.SerialBase:
    port = serial.serial_for_url(address, baudrate=_BAUD, timeout=_LOOK)
    watch(port)
    return port


def _again(address: str, stop: Callable[[], bool]) -> serial.SerialBase | None:
    while not stop():
        try:
            return _opened(address)
        except Exception:
            time.sleep(_AGAIN)
    return None
