"""Turn the columns in which docstrings list arguments into a Markdown list, for the reference."""

from __future__ import annotations

import re

_ENTRY = re.compile(r"(\S.*?) {2,}(?=\S)")


def _split(line: str, column: int) -> tuple[str, str]:
    """Split the first line of an entry into its name and its text, at the gap or the column."""
    gap = _ENTRY.match(line)
    if gap:
        return gap[1], line[gap.end() :]
    if len(line) > column and line[column - 1] == " ":
        return line[:column].rstrip(), line[column:]
    return "", line


def _listed(lines: list[str]) -> list[str]:
    """Return a paragraph as a list if it has columns, otherwise as it is."""
    gap = _ENTRY.match(lines[0])
    if not gap:
        return lines
    items: list[str] = []
    for line in lines:
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
            continue
        name, text = _split(line, gap.end())
        if not name:
            return lines
        items.append(f"- `{name}`: {text}")
    return items


def as_markdown(docstring: str) -> str:
    """Return a docstring, without its common indentation, with lists instead of columns."""
    paragraphs = re.split(r"\n{2,}", docstring)
    return "\n\n".join("\n".join(_listed(each.split("\n"))) for each in paragraphs if each)
