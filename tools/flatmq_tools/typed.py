"""Make commands of click from typed functions, which name each argument and option once.

A parameter is an argument, a keyword-only one an option, and a bool a flag. A tuple[...] or a
Mapping may be given several times. Annotated[...] adds, in any order:

    str         the help, or the name if it begins with "--"
    a type      of click, instead of the Python type
    a dict      arguments for click
    a function  whose options the command has; it returns the parameter

The modules of commands evaluate their annotations: they have no `from __future__ import
annotations`.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import click


class Reading(click.ParamType):
    """The type of a value that is read by a function, which raises ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def is_ours(error: Exception) -> bool:
    """Return whether it is an error of these tools, which has a text for the user."""
    return type(error).__module__.partition(".")[0] in ("flatmq_tools", "flatmq_rigs")


def command(
    group: click.Group, name: str | None = None, **more: Any
) -> Callable[..., click.Command]:
    """Return a decorator that adds a function to a group, with its name unless given.

    The command ends with the status that the function returns, or with the text of an error.
    """

    def added(function: Callable[..., Any]) -> click.Command:
        def run(**given: Any) -> None:
            try:
                status = _call(function, given)
            except BrokenPipeError:
                raise  # click ends without a word
            except Exception as error:
                text = str(error)
                if isinstance(error, OSError) and error.strerror:
                    text = f"{error.filename}: {error.strerror}" if error.filename else text
                elif not is_ours(error):
                    raise
                raise click.ClickException(text) from error
            sys.exit(status)

        run.__doc__ = function.__doc__
        parameters = [*_parameters(function)]
        return group.command(name or function.__name__, params=parameters, **more)(run)

    return added


def _call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a function with those of the values that are its own."""
    values = {}
    for one in inspect.signature(function).parameters.values():
        maker = _maker(one)
        values[one.name] = _call(maker, given) if maker else given[one.name]
    return function(**values)


def _parameters(function: Callable[..., Any]) -> Iterator[click.Parameter]:
    for one in inspect.signature(function).parameters.values():
        maker = _maker(one)
        if maker is not None:
            yield from _parameters(maker)
        else:
            yield _parameter(one)


def _maker(one: inspect.Parameter) -> Callable[..., Any] | None:
    notes = getattr(one.annotation, "__metadata__", ())
    return next((note for note in notes if isinstance(note, types.FunctionType)), None)


def _parameter(one: inspect.Parameter) -> click.Parameter:
    names = [one.name]
    more = _of_type(one.annotation)
    if one.default not in (one.empty, None, "", ()):
        more["default"] = one.default
    for note in getattr(one.annotation, "__metadata__", ()):
        if isinstance(note, dict):
            more |= note
        elif not isinstance(note, str):
            more["type"] = note
        elif note.startswith("--"):
            names.append(note)
        else:
            more["help"] = note
    required = one.default is one.empty and not {"default", "callback"} & more.keys()
    if one.kind is not one.KEYWORD_ONLY:
        return click.Argument(names, required=required, **more)
    if len(names) == 1:
        names.append("--" + one.name.replace("_", "-"))
    more.setdefault("show_default", "default" in more)
    return click.Option(names, required=required, **more)


def _of_type(annotation: Any) -> dict[str, Any]:
    """Return the arguments for click that a Python type makes."""
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    origin, kinds = get_origin(annotation), get_args(annotation)
    if origin is types.UnionType:  # with None
        return _of_type(kinds[0])
    if origin is Literal:
        return {"type": click.Choice(kinds)}
    if origin is Mapping:
        return {"multiple": True, "metavar": "NAME=VALUE", "callback": _pairs}
    if origin is tuple:
        return _of_type(kinds[0]) | {"multiple": True} if kinds[-1] is ... else {"type": kinds}
    return {"is_flag": True} if annotation is bool else {"type": annotation}


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise click.BadParameter(f"must be NAME=VALUE, not {one!r}")
    return dict(one.split("=", 1) for one in given)
