"""Type into the prompt of a board, over MQTT: each line is signed."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from flatmq.message import Message

from ..desk_client import Desk, connect, printable
from ..errors import ToolError
from ..plain import PlainConsole
from . import boards, keys

SECONDS = 600
_ANSWER_S = 60.0
_GRANT_S = 15.0
_TURN_MS = 100
_LARGEST = 2048  # bytes of a signed line that a board takes
_TOPIC = 1200  # and around it, with the longest name of a board


class Session:
    """The prompt of one board."""

    def __init__(self, client: Any, to: str, key: keys.rsa.RSAPrivateKey) -> None:
        self._client = client
        self._to = to
        self._key = key
        self._said: list[dict[str, Any]] = []
        self._grant = ""
        self._n = 0
        self.subscription = client.subscribe(f"{to}/prompt/out".encode(), self._take, 1)

    def _take(self, message: Message) -> None:
        if not message.retain:
            self._said.append(boards.status(message.payload))

    def _await(self, key: str, patience: float) -> dict[str, Any]:
        """Return the next answer that has this key. Raises ToolError."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            self._client.poll(_TURN_MS)
            for said in self._said:
                if "busy" in said and key == "grant":  # else somebody else has asked
                    raise ToolError(f"somebody is there, for {said['busy']} s at most")
                if key in said:
                    self._said.clear()
                    return said
        if self._client.error:
            raise ToolError(f"no connection to the broker: {self._client.error}")
        name = self._to.partition("/")[2]
        raise ToolError(f"{name} does not answer: is it online, with the part prompt?")

    def begin(self) -> None:
        """Ask for a session."""
        self._client.publish(f"{self._to}/prompt/ask".encode(), b"", 1)
        self._grant = str(self._await("grant", _GRANT_S)["grant"])

    def run(self, code: str) -> tuple[str, int]:
        """Run code on the board; return what it printed, and the seconds that are left.

        Raises ValueError for code that is too long, and ToolError.
        """
        said = {"to": self._to, "grant": self._grant, "n": self._n + 1, "seconds": SECONDS,
                "code": code}  # fmt: skip
        text = json.dumps(said).encode()
        signed = text + b"\n" + base64.b64encode(keys.sign(self._key, text))
        if len(signed) > _LARGEST:
            more = len(signed) - _LARGEST
            raise ValueError(f"the line is {more} bytes too long for the board")
        self._n += 1
        self._client.publish(f"{self._to}/prompt/in".encode(), signed, 1)
        while (answer := self._await("n", _ANSWER_S))["n"] != self._n:
            pass
        left = answer.get("left")
        return printable(answer.get("out")), left if isinstance(left, int) else 0


def main(
    desk: Desk,
    board: str,
    key: Path,
    read: Callable[[str], str] = input,
    console: Console | None = None,
) -> int:
    """Read lines and run them on the board, until the end of input, Ctrl-C or the session's end.

    Returns 0. Raises ToolError and TrustError.
    """
    console = console or PlainConsole()
    client = desk.client("ota", tx_size=_LARGEST + _TOPIC)
    session = Session(client, boards.base(board), keys.private(key))
    connect(client, session.subscription)
    with console.status(f"asking {board} ..."):
        session.begin()
    console.print(f"{board}: {SECONDS // 60} minutes; Ctrl-D ends it", style="dim")
    end = math.inf  # of the session, which begins with the first line
    try:
        while time.monotonic() < end:
            try:
                line = read(">>> ")
            except (EOFError, KeyboardInterrupt):
                if time.monotonic() < end:
                    session.run("")
                break
            if line.strip() and time.monotonic() < end:
                try:
                    out, left = session.run(line)
                    end = time.monotonic() + left
                except ValueError as error:
                    out = f"{error}\n"
                console.print(out, end="", soft_wrap=True)
        else:
            console.print("the session is over")
    finally:
        client.disconnect()
    return 0
