"""Figures of an earlier measurement, as long as they are those of the sources.

The section ends with a digest of the sources and of itself, so that neither a changed source nor
a changed figure passes for measured.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from flatmq_rigs import results
from flatmq_rigs.size.steps import BOUNDS
from flatmq_tools.bytecode import SOURCES


def sealed(text: str, sources: Path = SOURCES) -> str:
    """Return the section with the digest at its end."""
    state = hashlib.sha256(text.encode())
    for source in sorted(sources.glob("*.py")):
        code = source.read_bytes()
        state.update(f"\n{source.name} {len(code)}\n".encode() + code)
    return f"{text}\n\nDigest of lib/flatmq and of these figures: `{state.hexdigest()}`."


def steps_on_32_bits(document: Path, sources: Path = SOURCES) -> dict[str, int]:
    """Return the bytes of heap held after each step; {} if they have to be measured."""
    begin, end = results.markers("size")
    section = document.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].strip()
    text = section.rpartition("\n\n")[0]
    if section != sealed(text, sources):
        return {}
    table = text.partition("\n| step |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", table, re.MULTILINE)
    figures = {step: int(figure.replace(",", "")) for step, figure in rows}
    return figures if BOUNDS.keys() <= figures.keys() else {}
