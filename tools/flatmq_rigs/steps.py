"""Make a sketch that prints when each step from the reset to the first PUBACK was reached."""

from __future__ import annotations

import re
from pathlib import Path

from flatmq_tools import boards, contents

PRINTED = re.compile(r"step (.+): (\d+) ms")


def make(board: str, folder: Path) -> int:
    """Write the sketch of `board`, with what prints the steps, into `folder`. Returns 0."""
    own = contents.find_sketch(boards.load(board).sketch)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_bytes(Path(__file__).with_name("steps_on_board.py").read_bytes())
    (folder / "sketch.py").write_bytes((own / "main.py").read_bytes())
    return 0


def read(log: str) -> dict[str, int]:
    """Return the steps that a board has printed, in milliseconds since its reset."""
    return {step: int(ms) for step, ms in PRINTED.findall(log)}
