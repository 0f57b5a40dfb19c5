"""Show the versions of boards and how their updates go; end an update."""

from __future__ import annotations

import time
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flatmq.rare.message import Message

from .. import broker as brokers
from ..trust import Trust
from . import online

_LISTEN = 1.0  # s for what is retained


def main(
    where: brokers.Broker, user: str | None, trust: Trust | None, console: Console | None = None
) -> int:
    """Print a table of all boards; return 0. Raises OnlineError and TrustError."""
    console = console or Console()
    said: dict[str, dict[str, Any]] = {}

    def take(message: Message) -> None:
        name = message.topic.decode(errors="replace").split("/")[1]
        said[name] = online.status(message.payload)

    client = online.client(where, user, trust)
    online.connect(client, client.subscribe(b"dev/+/ota/status", take, 1))
    end = time.monotonic() + _LISTEN
    while time.monotonic() < end:
        client.poll(100)
    client.disconnect()
    table = Table(box=box.SIMPLE)
    for head in ("board", "kind", "version", "update", "remark"):
        table.add_column(head, overflow="fold")
    for name, each in sorted(said.items()):
        table.add_row(*map(Text, (name, str(each.get("board")), str(each.get("version")),
                                  _update(each), _remark(each))))  # fmt: skip
    console.print(table if said else "no board has said anything of updates")
    return 0


def _update(said: dict[str, Any]) -> str:
    return " ".join(filter(None, [str(said.get("state") or ""), str(said.get("to") or "")]))


def _remark(said: dict[str, Any]) -> str:
    why, failed = str(said.get("why") or ""), said.get("failed")
    if isinstance(failed, dict):
        at = f" on {failed['at']} UTC" if failed.get("at") else ""
        why = why or f"{failed.get('version')} was given up{at}: {failed.get('why')}"
    return why


def cancel(
    where: brokers.Broker, target: str, user: str | None, trust: Trust | None,
    console: Console | None = None,
) -> int:  # fmt: skip
    """Remove the manifest of a board or a group; return 0. Raises OnlineError and TrustError."""
    to = online.named(target)
    client = online.client(where, user, trust)
    online.connect(client)
    online.publish(client, f"{to}/ota/manifest".encode(), b"")
    client.disconnect()
    (console or Console()).print(f"{to}: no update is offered any more", highlight=False)
    return 0
