"""Run every proof in its long form, one after another, and show one table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from . import results

SECTION = "proofs"
FIRMWARE = "FLATMQ_FIRMWARE"  # in the environment: a file
ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build" / "proofs"


@dataclass(frozen=True)
class Proof:
    """A command of `python -m`, and how much it does; `writes` if it has --results.

    One that `emulates` runs where FLATMQ_FIRMWARE names a firmware for the Pico W.
    """

    amount: str
    command: tuple[str, ...]
    writes: bool = True
    emulates: bool = False


def _rig(amount: str, *command: str) -> Proof:
    return Proof(amount, ("flatmq_rigs", *command))


PROOFS = {
    "tests": Proof(
        "all tests, whole",
        ("pytest", "--whole", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder",
         "host_tests"),
        writes=False,
    ),
    "faults": _rig("every scenario of a fault", "faults"),
    "hostile": _rig("1,000,000 hostile packets", "fuzz-long", "--packets", "1000000"),
    "hostile-5": _rig("1,000,000 hostile packets, MQTT 5", "fuzz-long", "--version", "5"),
    "hostile-websocket": _rig("200,000 over WebSocket", "fuzz-long", "--link", "websocket"),
    "hostile-tls": _rig("20,000 over TLS", "fuzz-long", "--link", "tls"),
    "broken-streams": _rig("4,000 broken TLS streams", "broken-streams"),
    "hostile-packs": _rig(
        "200,000 hostile messages in the pipeline",
        "fuzz-packs", "--documents", "200000", "--spark", "10000",
    ),
    "powercut": _rig("a power cut at every write", "powercut"),
    "soak": _rig("1,000,000 messages each way", "soak"),
    "soak-tls": _rig("200,000 over TLS", "soak", "--link", "tls"),
    "soak-websocket": _rig("200,000 over WebSocket", "soak", "--link", "websocket"),
    "crash": _rig("8 kills of each part of the pipeline", "crash"),
    "live": _rig("20,000 messages a second for 3 minutes", "live"),
    "emulated": Proof(
        "sketches on an emulated Pico W", ("flatmq_rigs", "emulated"), writes=False, emulates=True
    ),
    "emulated-hour": Proof(
        "an hour on an emulated Pico W", ("flatmq_rigs", "emulated-hour"), emulates=True
    ),
    "board": Proof(
        "the board tests on an emulated Pico W", ("flatmq_rigs", "board"), emulates=True
    ),
}  # fmt: skip
"""Each proof by name, in the order in which they run."""


Row = tuple[str, str, str, str]
"""The cells of a proof that has run; the last is "ok" or says that it failed."""


def counted(amount: str, log: str) -> str:
    """Return how much was done; after pytest, with the number of tests from its last line."""
    found = re.findall(r"^=*\s*(\d+ (?:passed|failed)\b.*?) in [\d.]+s", log, re.MULTILINE)
    return f"{amount}: {found[-1]}" if found else amount


def run(name: str, proof: Proof, document: Path | None, console: Console) -> Row:
    """Run a proof in a process of its own, whose output goes to a file, and show that it runs."""
    firmware = os.environ.get(FIRMWARE, "")
    if proof.emulates and not firmware:
        return name, proof.amount, "0", f"not run: {FIRMWARE} is not set"
    command = [sys.executable, "-m", *proof.command]
    if document and proof.writes:
        command += ["--results", str(document.resolve())]
    log = LOGS / f"{name}.log"
    began = time.monotonic()
    since = time.strftime("%H:%M")
    with log.open("w") as output, console.status(f"{name}: {proof.amount}, since {since}"):
        status = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env={**os.environ, "EMULATE": os.path.abspath(firmware)} if firmware else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
    amount = counted(proof.amount, log.read_text("utf-8", "replace"))
    result = "ok" if status == 0 else f"FAILED ({status})"
    return name, amount, f"{(time.monotonic() - began) / 60:.1f}", result


def section(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    failed = sum(row[-1].startswith("FAILED") for row in rows)
    head = ("proof", "how much", "minutes", "result")
    return (
        "## Proofs\n\n"
        f"`python -m flatmq_rigs proofs`: {len(rows)} proofs, {failed} failed.\n\n"
        f"{results.table(head, rows)}\n"
    )


def main(names: Sequence[str], document: Path | None) -> int:
    """Run these proofs; return 1 if one has failed. The table goes to the document, too."""
    LOGS.mkdir(parents=True, exist_ok=True)
    console = Console()
    rows = []
    for name in names:
        row = run(name, PROOFS[name], document, console)
        rows.append(row)
        console.print(" · ".join(row), markup=False, highlight=False, soft_wrap=True)
        if row[-1].startswith("FAILED"):
            log = (LOGS / f"{name}.log").relative_to(ROOT)
            console.print(f"its output: {log}", markup=False, highlight=False)
    text = section(rows)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if document:
        results.write(document, SECTION, text)
    return int(any(row[-1].startswith("FAILED") for row in rows))
