"""`flatmq pipeline map`: what mapping files make of a message."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...plain import PlainConsole
from . import files
from .files import MappingError
from .mapping import Mapping, Reading
from .pack import Record

__all__ = ["MappingError", "main"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SHOWN = 80  # characters of a text


def main(
    listed: bool, show: str | None, tried: tuple[str, str] | None, names: Sequence[str]
) -> int:
    """Do what the options ask for.

    Returns 1 if a message that was tried is a dead letter or matches no rule. Raises
    MappingError.
    """
    console = PlainConsole()
    if listed:
        table = Table(box=None, show_header=False)
        table.add_column(no_wrap=True)
        for name, about in files.shipped().items():
            table.add_row(name, Text(about))
        console.print(table)
    if show:
        click.echo(files.text(show), nl=False)
    if tried:
        return _try(console, *tried, names)
    if names:
        found = files.load(names)
        rules = f"{len(found.rules)} rules" if len(found.rules) != 1 else "1 rule"
        click.echo(f"{rules}, for {'  '.join(found.filters)}")
    return 0


def _try(console: Console, topic: str, payload: str, names: Sequence[str]) -> int:
    # Imported here: it takes a second, and --list does not need it.
    from ..jobs.measurements import mapped

    mapping = mapped(names or files.with_base())
    assert mapping is not None
    received = round(time.time() * 1e6)
    reading = mapping.reading(topic, _payload(payload), received)
    status = _shown(console, mapping, topic, reading, received)
    if names and reading.rule is not None and reading.reason is None:
        for key, unused in reading.rule.unused().items():
            console.print(Text(f"never matched in {key}: {', '.join(unused)}", "dim"))
    return status


def _payload(given: str) -> bytes:
    """The payload that an argument names. Raises MappingError."""
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_bytes()
        except OSError as error:
            raise MappingError(f"PAYLOAD {given}: {error.strerror}") from error
    if given.startswith("hex:"):
        try:
            return bytes.fromhex(given[4:])
        except ValueError as error:
            raise MappingError(f"PAYLOAD {given[:40]}: {error}") from error
    return given.encode("utf-8", "surrogateescape")


def _shown(console: Console, mapping: Mapping, topic: str, reading: Reading, received: int) -> int:
    if reading.rule is None:
        others = mapping.names(topic)
        click.echo(
            f"no rule reads this document; these are for its topic: {', '.join(others)}"
            if others else
            f"no rule is for the topic {topic}; there are rules for {'  '.join(mapping.filters)}"
        )  # fmt: skip
        return 1
    click.echo(f"rule: {reading.rule.name} ({reading.rule.format})")
    if reading.reason is not None:
        click.echo(f"dead letter: {reading.reason}")
        return 1
    if not reading.packs:
        click.echo("nothing: the message holds no measurements")
        return 0
    numbered = any(pack.seq is not None for pack in reading.packs)
    table = Table()
    for head in ("device", *(("boot", "seq") if numbered else ()), "quantity", "unit"):
        table.add_column(head, overflow="fold")
    table.add_column("value", justify="right", overflow="fold")
    table.add_column("time, UTC")
    for pack in reading.packs:
        # A run finds out the boot of a device that does not say it.
        boot = "" if pack.boot is None else str(pack.boot)
        first = [pack.device, *((boot, str(pack.seq)) if numbered else ())]
        if not pack.records:
            table.add_row(
                *map(Text, first), "", "", Text("none", "dim"), _time(pack.time, received)
            )
        for record in pack.records:
            cells = [*first, record.quantity, record.unit, _value(record)]
            table.add_row(*map(Text, cells), _time(record.time, received))
    console.print(table)
    return 0


def _value(record: Record) -> str:
    if record.value is not None:
        return f"{record.value:.12g}"
    if record.flag is not None:
        return "true" if record.flag else "false"
    if record.text is None and record.total is None:
        return "null"
    if record.text is None:
        return f"sum {record.total:.12g}"
    return repr(record.text if len(record.text) <= _SHOWN else record.text[: _SHOWN - 3] + "...")


def _time(at: int | None, received: int) -> Text:
    if at is None or at == received:
        return Text("arrival", "dim")
    moment = _EPOCH + datetime.timedelta(microseconds=at)
    return Text(moment.replace(tzinfo=None).isoformat(" ", "milliseconds"))
