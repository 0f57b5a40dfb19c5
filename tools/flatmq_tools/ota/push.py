"""Send a version to a board or a group: its manifest, then the pieces that each asks for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from flatmq import Client
from flatmq.message import Message

from ..desk_client import PATIENCE_MS, Desk, connect, printable, retain, turns
from ..plain import PlainConsole
from . import boards, keys
from .package import PIECE, Package, read

_HEAD = 12  # bytes of a request: of the hash, then in four bytes the position
ENDS = ("good", "refused", "failed", "cancelled")


@dataclass
class Outcome:
    """The report of a board on an update."""

    state: str
    """One of ENDS, "again" if it has failed and tries again, or what it does."""
    why: str = ""


def manifest(package: Package, to: str, key: keys.rsa.RSAPrivateKey) -> bytes:
    """Return the signed manifest of a package for "dev/NAME" or "group/NAME"."""
    said = {
        "counter": package.counter, "version": package.version, "kind": package.kind,
        "board": package.board, "to": to, "size": len(package.archive), "piece": PIECE,
        "sha256": hashlib.sha256(package.archive).hexdigest(),
    }  # fmt: skip
    text = json.dumps(said).encode()
    return text + b"\n" + base64.b64encode(keys.sign(key, text))


def outcome(package: Package, text: bytes, said: dict[str, Any]) -> Outcome:
    """Return what a status says of this package, whose manifest is `text`."""
    failed = said.get("failed") or {}
    if said.get("counter") == package.counter:
        return Outcome(str(said.get("state")))
    if failed.get("counter") == package.counter:
        return Outcome("failed", str(failed.get("why")))
    state = str(said.get("state"))
    if said.get("manifest") == binascii.crc32(text) and state not in ("good", "new"):
        return Outcome("again" if state == "failed" else state, str(said.get("why") or ""))
    return Outcome("")  # it has not looked at the manifest yet


class Server:
    """Answers the requests of boards for pieces of one package."""

    def __init__(self, client: Client, package: Package, text: bytes, to: str) -> None:
        self._client = client
        self._package = package
        self._text = text  # of the manifest
        self._digest = hashlib.sha256(package.archive).digest()
        self._waiting: dict[bytes, bytes] = {}  # pieces by topic: a board asks for one at a time
        self.asked: dict[str, int] = {}
        """How far each board has come, in bytes."""
        self.outcomes: dict[str, Outcome] = {}
        self._offered = False
        self._due = math.inf  # until when the broker must have sent the manifest that it retains
        client.on_connect = self._on_connect
        self.replaced = False
        """Whether another manifest, or none, is offered instead."""
        self.topic = f"{to}/ota/manifest".encode()
        self.offering = client.subscribe(self.topic, self._on_manifest, 1)
        self.asking = client.subscribe(b"dev/+/ota/get", self._on_request, 1)
        self.telling = client.subscribe(b"dev/+/ota/status", self._on_status, 1)

    def answer(self) -> None:
        """Answer what boards have asked for, and offer a manifest that the broker has lost."""
        if self._client.connected and time.monotonic() >= self._due:
            self._due = math.inf
            self._waiting[self.topic] = self._text
        for topic, piece in list(self._waiting.items()):
            if self._client.publish(topic, piece, 1, topic == self.topic) is None:
                break
            del self._waiting[topic]
        self._client.flush()

    def _on_connect(self, _client: Client) -> None:
        self._due = time.monotonic() + PATIENCE_MS / 1000

    def _on_manifest(self, message: Message) -> None:
        self._due = math.inf
        own = message.payload == self._text
        self.replaced = self._offered and not own
        self._offered |= own

    def _on_request(self, message: Message) -> None:
        head, data = message.payload, self._package.archive
        if len(head) != _HEAD or head[: _HEAD - 4] != self._digest[: _HEAD - 4]:
            return
        at = int.from_bytes(head[_HEAD - 4 :], "big")
        if at >= len(data):
            return
        base = message.topic[: -len(b"get")]
        self._waiting[base + b"piece"] = head + data[at : at + PIECE]
        self.asked[base.decode().split("/")[1]] = at

    def _on_status(self, message: Message) -> None:
        name = message.topic.decode(errors="replace").split("/")[1]
        said = boards.status(message.payload)
        found = outcome(self._package, self._text, said)
        # If it is retained, an earlier push was cancelled, and the board takes this one up.
        if found.state and not (message.retain and found.state == "cancelled"):
            self.outcomes[name] = found


def main(
    desk: Desk,
    target: str,
    file: Path,
    key: Path,
    seconds: float | None = None,
    console: Console | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Send the package in `file` to a board or to group/NAME, until each has said how it went.

    A group has no end but Ctrl-C, `seconds`, and `stop` returning True. Returns 1 if a board did
    not take it, or did not say so in time. Raises ToolError and TrustError.
    """
    console = console or PlainConsole()
    package = read(file)
    to = boards.base(target)
    text = manifest(package, to, keys.private(key))
    client = desk.client("ota", tx_size=16 * (PIECE + 100), inflight=64)
    server = Server(client, package, text, to)
    connect(client, server.offering, server.asking, server.telling)
    retain(client, server.topic.decode(), text)
    console.print(
        f"{package.version} for {package.board}: {len(package.archive):,} bytes to {to}; Ctrl-C "
        "ends it, and the board goes on when it is started again",
        soft_wrap=True,
    )  # fmt: skip
    said: dict[str, Outcome] = {}
    ended: set[str] = set()
    try:
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            console=console,
            transient=True,
        ) as bars:
            tasks: dict[str, TaskID] = {}
            for _ in turns(client, seconds, stop):
                server.answer()
                _show(server, package, bars, tasks, said, console)
                ended = {name for name, found in said.items() if found.state in ENDS}
                if server.replaced or (not to.startswith("group/") and target in ended):
                    break
    except KeyboardInterrupt:
        console.print()
    client.disconnect()
    if server.replaced:
        line = f"{target} is offered another update now, or none"
        console.print(line)
    elif not to.startswith("group/") and target not in ended:
        console.print(f"{target} has not reported a result")
    good = {name for name, found in said.items() if found.state == "good"}
    wanted = {*said} if to.startswith("group/") else {target}
    return 0 if good >= wanted and good else 1


def _show(
    server: Server, package: Package, bars: Progress, tasks: dict[str, TaskID],
    said: dict[str, Outcome], console: Console,
) -> None:  # fmt: skip
    for name, at in server.asked.items():
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=len(package.archive))
        bars.update(tasks[name], completed=at)
    for name, found in server.outcomes.items():
        if said.get(name) == found:
            continue
        said[name] = found
        text = {
            "good": f"runs {package.version}", "waiting": "waits",
            "again": "failed, and tries again within ten minutes",
        }.get(found.state, found.state)  # fmt: skip
        if found.state in (*ENDS, "waiting", "again"):
            why = f": {found.why}" if found.why else ""
            line = printable(f"{name} {text}{why}")
            console.print(line, soft_wrap=True)
