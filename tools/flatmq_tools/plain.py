"""The terminal of a command. What users and boards name is text there, whatever is in it."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status
from rich.text import Text


class PlainConsole(Console):
    """A console without markup: rich takes "[red]" in the name of a folder for a command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, **options)

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Return a status with this text."""
        return super().status(Text(status) if isinstance(status, str) else status, **options)
