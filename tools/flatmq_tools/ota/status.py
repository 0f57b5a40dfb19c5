"""Show the versions of boards and how their updates go; end an update."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ..desk_client import Desk, connect, printable, retain, retained
from ..plain import PlainConsole
from . import boards


def main(desk: Desk) -> int:
    """Print a table of all boards; return 0. Raises ToolError and TrustError."""
    client = desk.client("ota")
    found = retained(client, "dev/+/ota/status")
    client.disconnect()
    said = {topic.split("/")[1]: boards.status(payload) for topic, payload in found.items()}
    table = Table(box=box.SIMPLE)
    for head in ("board", "kind", "version", "MicroPython", "update", "remark"):
        table.add_column(head, overflow="fold", no_wrap=head == "board")
    for name, each in sorted(said.items()):
        micropython = str(each.get("micropython") or "").rpartition("MicroPython ")[2]
        row = (
            name, each.get("board"), each.get("version"), micropython, _update(each), _remark(each)
        )  # fmt: skip
        table.add_row(*(Text(printable(cell)) for cell in row))
    PlainConsole().print(table if said else "no board has said anything of updates")
    return 0


def _update(said: dict[str, Any]) -> str:
    return " ".join(filter(None, [str(said.get("state") or ""), str(said.get("to") or "")]))


def _remark(said: dict[str, Any]) -> str:
    why, failed = str(said.get("why") or ""), said.get("failed")
    if failed:
        at = f" on {failed['at']} UTC" if failed.get("at") else ""
        why = why or f"{failed.get('version')} was given up{at}: {failed.get('why')}"
    return why


def cancel(desk: Desk, target: str) -> int:
    """Remove the manifest of a board or a group; return 0. Raises ToolError and TrustError."""
    to = boards.base(target)
    client = desk.client("ota")
    connect(client)
    retain(client, f"{to}/ota/manifest", b"")
    client.disconnect()
    PlainConsole().print(f"{to}: no update is offered any more")
    return 0
