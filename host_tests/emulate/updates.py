"""`python -m emulate.updates`: updates over MQTT on an emulated Pico W, with FLATMQ_FIRMWARE.

Each row is a board of its own, with version 1 of the stock sketch, that is offered version 2.
"""

import argparse
import contextlib
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from flatmq_rigs import emulated, results
from flatmq_tools import broker
from flatmq_tools.desk_client import Desk
from flatmq_tools.ota import keys, package, push

SECTION = "updates"
CUTS = 20
NAME = "pico-1"
PATIENCE = 240  # s of this machine, and of the board's clock
FAILS = "import flatmq.ota\nraise ValueError('a sensor is missing')\n"


class Board:
    """An emulated board with version 1, and a desk."""

    def __init__(
        self, firmware: str, folder: Path, cuts: list[float], kind: str = "pico_w",
        patience: int = PATIENCE, sketch: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._patience = patience
        self._stack = contextlib.ExitStack()
        self.near = self._stack.enter_context(broker.mosquitto())
        key = folder / "fleet.key"
        if not key.exists():
            keys.generate(key)
        self._key = key
        options = f"--broker {self.near.address} --set device.name={NAME} --set device.interval=2"
        words = [*options.split(), "--for", f"{patience}s", "--ota-key", f"{key}.pub"]
        for cut in cuts:
            words += ["--power-cut", f"{cut:.2f}s"]
        command = [sys.executable, "-m", "flatmq_tools.cli", "emulate", kind, *sketch]
        self._log = folder / "emulate.log"
        output = self._stack.enter_context(self._log.open("w"))
        self._process = subprocess.Popen(
            [*command, "--firmware", firmware, *words], cwd=folder,
            env={**os.environ, "COLUMNS": "200"}, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def stop(self) -> str:
        """End it; return what it printed."""
        self._process.terminate()
        self._process.wait()
        self._stack.close()
        return self._log.read_text("utf-8", "replace")

    def update(self, made: package.Package, folder: Path) -> tuple[int, str]:
        """Push a version; return the status of the push, and what it said of the board."""
        file = folder / "two.package"
        file.write_bytes(made.written())
        said = io.StringIO()
        status = push.main(
            Desk(self.near), NAME, file, self._key, self._patience,
            Console(file=said, width=200),
        )  # fmt: skip
        lines = [line for line in said.getvalue().splitlines() if line.startswith(NAME)]
        return status, lines[-1] if lines else "nothing"


def judged(what: str, wanted: str, said: str, *figures: str) -> tuple[str, ...]:
    """Return the row of a board, with a verdict, and print it."""
    row = (what, said, *figures, "ok" if said.startswith(f"{NAME} {wanted}") else "FAILED")
    print(" · ".join(row), flush=True)
    return row


def write(
    document: Path | None, section: str, text: str, head: tuple[str, ...], rows: list[Any]
) -> int:
    """Write the rows into a section of a document; return 1 if one has failed."""
    if document:
        results.write(document, section, f"{text}\n\n{results.table(head, rows)}\n")
    return int(any(row[-1] != "ok" for row in rows))


def run(
    firmware: str, made: package.Package, cuts: list[float]
) -> tuple[int, str, float, list[float], int]:
    """Update a board.

    Return the status and the last word of the push, its seconds, when the board was reset in
    seconds of its own, and how often its power was cut.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        board = Board(firmware, folder, cuts)
        began = time.monotonic()
        try:
            status, said = board.update(made, folder)
            spent = time.monotonic() - began
        finally:
            text = board.stop()
    resets = re.findall(r"^ *([\d.]+) s +board \| reset by (.*)$", text, re.MULTILINE)
    lost = sum("power" in cause for _, cause in resets)
    return status, said, spent, [float(at) for at, _ in resets], lost


def main(arguments: list[str] | None = None) -> int:
    """Run every row; 1 if one does not end as it should."""
    parser = argparse.ArgumentParser(prog="emulated-updates", description=__doc__)
    parser.add_argument("--cuts", type=int, default=CUTS, help="Power cuts.  [default: 20]")
    parser.add_argument("--results", type=Path, help="Document to write the table to.")
    given = parser.parse_args(arguments)
    firmware = emulated.needed("pico_w")
    two = package.make("pico_w", None, "2")
    with tempfile.TemporaryDirectory() as name:
        Path(name, "main.py").write_text(FAILS)
        fails = package.make("pico_w", name, "2")
    size = f"{len(two.archive):,} B"
    rows = []

    def row(what: str, wanted: str, cells: tuple[int, str, float, list[float], int]) -> None:
        _, said, spent, resets, cuts = cells
        done = f"{resets[0]:.1f}" if resets else results.NONE
        rows.append(judged(what, wanted, said, str(cuts), done, f"{spent:.0f}"))

    row(f"an update of {size}", "runs 2", run(firmware, two, []))
    chance = random.Random(1)
    moments = [[chance.uniform(1.6, 6.5)] for _ in range(given.cuts)]
    ended = [run(firmware, two, cuts) for cuts in moments]
    came = [each for each in ended if each[4]]
    worst = next((each for each in ended if each[0]), ended[-1])
    total = sum(each[4] for each in ended)
    row(
        f"{len(ended)} updates, a power cut in each of {len(came)}", "runs 2",
        (worst[0], worst[1], max(each[2] for each in ended), [], total),
    )  # fmt: skip
    row("a version that ends in an exception", "failed: ValueError", run(firmware, fails, []))
    head = ("on an emulated Pico W", "the board says", "power cuts", "reset after, s",
            "until it says so, s", "")  # fmt: skip
    text = (
        "## Updates over MQTT\n\n`python -m flatmq_rigs emulated-updates`: version 1 is the "
        "stock sketch; seconds of the board's clock, whose flash takes no time, and of this "
        "machine's."
    )
    return write(given.results, SECTION, text, head, rows)


if __name__ == "__main__":
    sys.exit(main())
