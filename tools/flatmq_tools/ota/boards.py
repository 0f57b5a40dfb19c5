"""The names of boards and groups in the topics of updates, and what boards say there."""

from __future__ import annotations

import json
from typing import Any

from flatmq import is_name

from ..errors import ToolError


def base(target: str) -> str:
    """Return what the topics of a board, or of group/NAME, begin with. Raises ToolError."""
    name = target.removeprefix("group/")
    raw = name.encode()
    if not name or "/" in name or not is_name(bytearray(raw), 0, len(raw)):
        raise ToolError(f"{target}: must be the name of a board, or group/NAME")
    return target if target.startswith("group/") else f"dev/{name}"


def status(payload: bytes) -> dict[str, Any]:
    """Return what a status says; {} if it is none."""
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
