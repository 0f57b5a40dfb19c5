"""Figures as Markdown, and their place in a document: a section between two markers each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

NONE = "-"


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


def write(path: Path, name: str, section: str) -> None:
    """Put the section into the file, which is made when it does not exist."""
    document = path.read_text(encoding="utf-8") if path.exists() else "# Results\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(insert(document, name, section), encoding="utf-8")
