"""The crashes that boards have published, which the broker retains on dev/NAME/crash."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from .desk_client import Desk, printable, retain, retained
from .plain import PlainConsole


@dataclass
class Crash:
    """A record, of which anything may be missing."""

    cause: str = ""
    trace: str = ""
    version: str = ""
    count: str = ""
    uptime: str = ""
    heap: str = ""
    time: float | None = None

    @property
    def error(self) -> str:
        """The exception's last line, or the cause."""
        return self.trace.rpartition("\n")[2] or self.cause


def read(payload: bytes) -> Crash:
    """Return what a payload says; the cause says so if it is no record."""
    try:
        record = json.loads(payload)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        return Crash("not a record of a crash")
    names = ("cause", "trace", "version", "count", "uptime", "heap")
    texts = {name: printable(record.get(name, "")) for name in names}
    when = record.get("time")
    is_time = isinstance(when, (int, float)) and 0 <= when < 1e12  # else it is no date
    return Crash(**texts, time=when if is_time else None)


def span(seconds: float) -> str:
    """Return a time for people, such as 3 h."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def table(crashes: dict[str, Crash]) -> Table:
    """All crashes, one line for each board."""
    result = Table(box=box.SIMPLE)
    for head in ("board", "when", "version", "after", "free heap", "times", "why"):
        result.add_column(head, overflow="fold", no_wrap=head == "board")
    now = time.time()
    for name, crash in sorted(crashes.items()):
        ago = "" if crash.time is None else f"{span(max(0.0, now - crash.time))} ago"
        after = span(float(crash.uptime)) if crash.uptime.isdecimal() else ""
        row = (name, ago, crash.version, after, crash.heap, crash.count, crash.error)
        result.add_row(*map(Text, row))
    return result


def main(desk: Desk, board: str | None, clear: bool) -> int:
    """Show the crashes of all boards, or of one; return 0.

    One is shown with its traceback. `clear`: remove it from the broker. Raises ToolError and
    TrustError.
    """
    console = PlainConsole()
    client = desk.client("crashes")
    crashes = {
        printable(topic.split("/")[1]): read(payload)
        for topic, payload in retained(client, f"dev/{board or '+'}/crash").items()
    }
    if crashes:
        console.print(table(crashes))
    else:
        console.print(f"no crash of {board or 'any board'}")
    for name, crash in sorted(crashes.items()) if board else ():
        console.print(Text(f"{name}:\n{crash.trace or crash.cause}\n"), soft_wrap=True)
    if clear and crashes:
        retain(client, f"dev/{board}/crash", b"")
    client.disconnect()
    return 0
