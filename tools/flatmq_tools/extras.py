"""Name the extra of flatmq to install when a command lacks a package."""

from __future__ import annotations

from typing import Any

import click

from .start import missing


class Group(click.Group):
    """A group of commands that need extras, as in {"demo": "demo"}; others need `default`.

    A package that is missing ends a command with one line that says what to install.
    """

    def __init__(
        self, *args: Any, extras: dict[str, str], default: str = "tools", **given: Any
    ) -> None:
        super().__init__(*args, **given)
        self._extras = extras
        self._default = default

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises click.ClickException if a package is missing."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if not error.name or error.name.startswith("flatmq"):
                raise
            extra = self._extras.get(ctx.invoked_subcommand or "", self._default)
            raise click.ClickException(missing(error.name, extra)) from error
