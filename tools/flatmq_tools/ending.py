"""Command exit: with a status, or with a one-line error that the user can fix."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click


def end(run: Callable[[], int], *errors: type[Exception]) -> None:
    """End with what `run` returns; one of `errors` is one line, not a trace."""
    from .broker import BrokerError
    from .interpreter import InterpreterError

    try:
        status = run()
    except Exception as error:
        if not isinstance(error, (BrokerError, InterpreterError, *errors)):
            raise
        raise click.ClickException(str(error)) from error
    sys.exit(status)
