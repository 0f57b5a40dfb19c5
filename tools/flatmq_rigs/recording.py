"""Write the picture of a terminal that the README shows, from a real run of `make demo`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from rich.console import Console
from rich.text import Text

_COLUMNS = 56
_WIDTH = 560  # pixels at most; a phone shows it smaller
_READINGS = "6"
# The picture loads nothing from elsewhere: a reader's own monospaced font will do.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def recorded() -> str:
    """Run the demo, and return what a terminal shows as SVG. Raises CalledProcessError."""
    done = subprocess.run(
        [sys.executable, "-m", "flatmq_tools.cli", "demo", "--readings", _READINGS],
        check=True, capture_output=True, text=True,
        env={**os.environ, "COLUMNS": str(_COLUMNS)},
    )  # fmt: skip
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    console = Console(width=_COLUMNS, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text("$ make demo", style="bold"))
    for line in lines:
        style = "bold green" if "0 bytes" in line or line == "every message arrived" else ""
        console.print(Text(line, style=style))
    picture = _FONTS.sub("", console.export_svg(title="flatmq", unique_id="demo"))
    return picture.replace("<svg ", f'<svg width="{_WIDTH}" ', 1)
