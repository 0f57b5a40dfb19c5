"""Check how the report looks in a browser: `python -m flatmq_rigs look`.

It is shown as wide as a phone and as a desktop. The check fails where something sticks out at the
side or cards are not beside each other.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

NAMES = (
    "chromium", "chromium-browser", "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
WIDTHS = {390: 1, 1400: 3}
"""Of the window, and how many cards are beside each other in it."""
HEIGHT = 4200
PAPER, PAGE = (0xFF, 0xFF, 0xFF), (0xF4, 0xF6, 0xF8)
_EDGE = 10  # px at the right that have nothing but the page
_CARD = 300  # minimum width of a card, in px
_PATIENCE = 120  # s


class LookError(RuntimeError):
    """It looks wrong, or cannot be looked at; the text says how."""


def browser() -> str:
    """A Chromium: $CHROMIUM, or what there is. Raises LookError."""
    for name in filter(None, (os.environ.get("CHROMIUM"), *NAMES)):
        found = shutil.which(name)
        if found:
            return found
    raise LookError("there is no Chromium: install it, or name the program in CHROMIUM")


def shown(page: Path, width: int, to: Path) -> Image.Image:
    """The page in a window of that width; its picture goes to the file `to`. Raises LookError."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--hide-scrollbars",
                f"--user-data-dir={profile}", f"--window-size={width},{HEIGHT}",
                f"--screenshot={to.absolute()}", page.absolute().as_uri(),
            ],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    if done.returncode or not to.exists():
        raise LookError(f"{page} cannot be shown: {done.stderr.strip()}")
    with Image.open(to) as image:
        return image.convert("RGB")


def check(seen: Image.Image, width: int, beside: int) -> None:
    """LookError when something sticks out, or there are not so many cards beside each other."""
    if seen.width != width:
        raise LookError(f"{seen.width} px wide in a window of {width}")
    right = seen.crop((width - _EDGE, 0, width, seen.height))
    if right.getcolors() != [(_EDGE * seen.height, PAGE)]:
        raise LookError(f"in {width} px something sticks out at the right")
    if cards(seen) != beside:
        raise LookError(f"in {width} px {cards(seen)} cards are beside each other, not {beside}")


def cards(seen: Image.Image) -> int:
    """Return the maximum number of cards beside each other: runs of their white."""
    most = 0
    for y in range(0, seen.height, 5):
        row = "".join("01"[seen.getpixel((x, y)) == PAPER] for x in range(seen.width))
        most = max(most, len(re.findall(f"1{{{_CARD},}}", row)))
    return most


def main() -> int:
    """Show a page, and say where its pictures are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", default=Path("build/pipeline/report.html"))
    parser.add_argument(
        "to", type=Path, nargs="?", default=Path("build/look"), help="the folder for the pictures"
    )
    told = parser.parse_args()
    if not told.page.is_file():
        print(f"{told.page} is not there: `make pipeline` writes a report", file=sys.stderr)
        return 1
    told.to.mkdir(parents=True, exist_ok=True)
    try:
        for width, beside in WIDTHS.items():
            target = told.to / f"{width}.png"
            check(shown(told.page, width, target), width, beside)
            print(f"{target}: nothing sticks out")
    except LookError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
