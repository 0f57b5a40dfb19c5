"""The commands of the README and the how-to pages."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

PROGRAMS = {"flatmq", "make", "mosquitto", "mpremote", "pip", "python", "spark-submit"}
# Figures and tables that a command writes; they name it in a sentence.
_MADE = {"results.md"}
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in _MADE),
]


def _lines(page: Path) -> Iterator[str]:
    """Yield the lines of blocks, fenced or indented, that are not in another language."""
    fence: str | None = None
    before = ""
    for line in page.read_text("utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence in ("", "sh"):
            yield line
        elif fence is None and line.startswith("    ") and (not before or before[:4] == "    "):
            yield line.strip()
        before = line


def commands(page: Path) -> Iterator[tuple[str, ...]]:
    for line in _lines(page):
        for part in re.split(r"&&|[;|]", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:  # not for a shell
                continue
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words and words[0] in PROGRAMS:
                yield tuple(words)


def everything() -> dict[tuple[str, ...], str]:
    """Return each command once, with the first page that has it."""
    found: dict[tuple[str, ...], str] = {}
    for page in PAGES:
        for words in commands(page):
            found.setdefault(words, page.name)
    return found
