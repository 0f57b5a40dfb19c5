"""Figures, and their place in a document: a section each, between markers, and tables as CSV."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

NONE = "-"
TABLES = "results"
"""The folder of the tables, beside the document."""

_SUBHEADING = re.compile("### (.+)")


def markers(name: str) -> tuple[str, str]:
    """The lines before and after the section of that name."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def number(value: float | None) -> str:
    """A number with at most three figures that count, or thousands apart; "-" for None."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def insert(document: str, name: str, section: str) -> str:
    """The document with its section of that name replaced; appended when it has none.

    Raises ValueError when only one of the markers is there, or they are the wrong way round.
    """
    first, last = markers(name)
    block = f"{first}\n{section.strip()}\n{last}"
    if first not in document and last not in document:
        return f"{document.rstrip()}\n\n{block}\n".lstrip()
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the document needs {first} and then {last}, or neither")
    return before + block + after


def tables(document: Path, name: str) -> list[Path]:
    """Return the tables of the section of that name: files beside the document."""
    found = (document.parent / TABLES).glob(f"{name}[.]*csv")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def rows(path: Path) -> list[list[str]]:
    """Return the rows of a table, the first of which are the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def write(document: Path, name: str, section: str, *, inline: bool = False) -> None:
    """Put the section into the file, which is made when it does not exist.

    Its tables are written beside it as CSV, one for each heading, and linked; `inline` ones stay.
    """
    text = document.read_text(encoding="utf-8") if document.exists() else "# Results\n"
    document.parent.mkdir(parents=True, exist_ok=True)
    for old in tables(document, name):
        old.unlink()
    if not inline:
        section = _apart(document, name, section)
    document.write_text(insert(text, name, section), encoding="utf-8")


def _apart(document: Path, name: str, section: str) -> str:
    """Write the tables of a section to files, and return it with links in their places."""
    lines: list[str] = []
    file = f"{name}.csv"
    for is_table, group in itertools.groupby(section.splitlines(), lambda x: x.startswith("|")):
        block = list(group)
        if not is_table:
            lines += block
            for title in filter(None, map(_SUBHEADING.match, block)):
                file = f"{name}.{'-'.join(re.findall('[a-z0-9]+', title[1].lower()))}.csv"
            continue
        lined = [line.strip("|").split("|") for line in block]
        cells = [[cell.strip() for cell in line] for line in lined]
        path = document.parent / TABLES / file
        if path.exists():
            raise ValueError(f"section {name!r}: two tables under one heading, {file}")
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([cells[0], *cells[2:]])
        lines.append(f"Table: [{file}]({TABLES}/{file})")
    return "\n".join(lines)
