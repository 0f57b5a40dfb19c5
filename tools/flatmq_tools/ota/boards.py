"""The names of boards and groups in the topics of updates, and what boards say there."""

from __future__ import annotations

import json
from typing import Any

from flatmq import is_name

from ..errors import ToolError

_LONGEST = 1000  # bytes of a name; a topic has 65,535


def is_board(name: str) -> bool:
    """Return whether a board may have that name, which is a level of its topics."""
    raw = bytearray(name, "utf-8", "surrogateescape")
    return 0 < len(raw) <= _LONGEST and "/" not in name and is_name(raw, 0, len(raw))


def base(target: str) -> str:
    """Return what the topics of a board, or of group/NAME, begin with. Raises ToolError."""
    name = target.removeprefix("group/")
    if not is_board(name):
        raise ToolError(f"{target[:80]!r}: must be the name of a board, or group/NAME")
    return target if target.startswith("group/") else f"dev/{name}"


def status(payload: bytes) -> dict[str, Any]:
    """Return what a status says, whose `failed` is a dict if it is there; {} if it is none."""
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict) or not isinstance(said.get("failed", {}), dict | None):
        return {}
    return said
