"""Check how the report looks in a browser: wide and narrow, by day and by night, and printed.

Nothing sticks out at the side, cards are beside each other where there is room, no chart is blank.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

NAMES = (
    "chromium", "chromium-browser", "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)  # fmt: skip
WIDTHS = {390: False, 1400: True}
"""Of the window, and whether cards are beside each other in it."""
HEIGHT = 4200
COLOURS = {"light": ((0xFF, 0xFF, 0xFF), (0xF4, 0xF6, 0xF8)),
           "dark": ((0x1A, 0x20, 0x27), (0x11, 0x15, 0x1A))}  # fmt: skip
"""Of a card, and of the page beneath it."""
_EDGE = 10  # px at the right that have nothing but the page
_CARD = 300  # minimum width of a card, in px
_PATIENCE = 120  # s


class LookError(RuntimeError):
    """It looks wrong, or cannot be looked at; the text says how."""


def browser() -> str | None:
    """Return a Chromium: $CHROMIUM, or one that is there."""
    names = filter(None, (os.environ.get("CHROMIUM"), *NAMES))
    return next(filter(None, map(shutil.which, names)), None)


def _browse(page: Path, width: int, colours: str, *options: str) -> str:
    """Show the page in a window of that width, and return what it prints. Raises LookError."""
    program = browser()
    if program is None:
        raise LookError("there is no Chromium: install it, or name the program in CHROMIUM")
    scheme = ("dark", "light").index(colours)  # as Blink numbers them
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--hide-scrollbars",
                f"--user-data-dir={profile}", f"--window-size={width},{HEIGHT}",
                f"--blink-settings=preferredColorScheme={scheme}", "--virtual-time-budget=10000",
                *options, page.absolute().as_uri(),
            ],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    if done.returncode:
        raise LookError(f"{page} cannot be shown: {done.stderr.strip()}")
    return done.stdout


def shown(page: Path, width: int, colours: str, to: Path) -> Image.Image:
    """Return the page as a picture, which goes to the file `to`, too. Raises LookError."""
    _browse(page, width, colours, f"--screenshot={to.absolute()}")
    if not to.exists():
        raise LookError(f"{page} cannot be shown")
    with Image.open(to) as image:
        return image.convert("RGB")


def drawn(page: Path) -> None:
    """LookError if a chart that is seen is blank: nothing is drawn between its axes."""
    charts = _browse(page, max(WIDTHS), "light", "--dump-dom").split('class="drawn"')[1:]
    if not charts:
        raise LookError("there is no chart")
    for chart in charts:
        marks = re.findall(
            r'<path aria-label="[^"]*" role="graphics-symbol"[^>]* d="([^"]+)"', chart
        )
        if not any(mark for mark in marks):
            raise LookError(f"a chart is blank: {chart[:200]}")


def printed(page: Path, to: Path) -> None:
    """LookError if what is printed lacks the charts that are below the window."""
    size = {}
    for height in (600, HEIGHT):
        _browse(
            page, max(WIDTHS), "light", f"--window-size={max(WIDTHS)},{height}",
            f"--print-to-pdf={to.absolute()}",
        )  # fmt: skip
        size[height] = to.stat().st_size
    if size[600] < 0.9 * size[HEIGHT]:
        raise LookError(f"printed from a low window, charts are missing: {size} bytes")


def check(seen: Image.Image, width: int, beside: bool, colours: str) -> None:
    """LookError if something sticks out, or cards are beside each other only if they must not."""
    paper, page = COLOURS[colours]
    if seen.width != width:
        raise LookError(f"{seen.width} px wide in a window of {width}")
    right = seen.crop((width - _EDGE, 0, width, seen.height))
    if right.getcolors() != [(_EDGE * seen.height, page)]:
        raise LookError(f"in {width} px something sticks out at the right")
    if (cards(seen, paper) > 1) != beside:
        raise LookError(f"in {width} px {cards(seen, paper)} cards are beside each other")


def cards(seen: Image.Image, paper: tuple[int, int, int]) -> int:
    """Return the maximum number of cards beside each other: runs of their colour."""
    most = 0
    for y in range(0, seen.height, 5):
        row = "".join("01"[seen.getpixel((x, y)) == paper] for x in range(seen.width))
        most = max(most, len(re.findall(f"1{{{_CARD},}}", row)))
    return most


def all_of(page: Path, to: Path) -> list[Path]:
    """Check a page in each width and by each light; return its pictures. Raises LookError."""
    drawn(page)
    printed(page, to / "printed.pdf")
    pictures = []
    for colours in COLOURS:
        for width, beside in WIDTHS.items():
            pictures.append(to / f"{width}-{colours}.png")
            check(shown(page, width, colours, pictures[-1]), width, beside, colours)
    return pictures
