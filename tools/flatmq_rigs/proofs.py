"""Run every proof in its long form, one after another, and show one table.

Where only some are run, the rows of the others stay as they were: each row has its commit.
"""

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

from . import emulated, results

SECTION = "proofs"
ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build" / "proofs"


@dataclass(frozen=True)
class Proof:
    """The words of a `python -m`, and how much it does; `writes` if it has --results.

    One that `emulates` a board runs where FLATMQ_FIRMWARE names a firmware for it.
    """

    amount: str
    command: str
    writes: bool = True
    emulates: str = ""


PROOFS = {
    "tests": Proof(
        "all tests, whole",
        "pytest --whole -n 2 --dist loadgroup --no-loadscope-reorder host_tests", writes=False,
    ),
    "faults": Proof("every scenario of a fault", "flatmq_rigs faults"),
    "hostile": Proof("1,000,000 hostile packets", "flatmq_rigs fuzz-long --packets 1000000"),
    "hostile-5": Proof("1,000,000 hostile packets, MQTT 5", "flatmq_rigs fuzz-long --version 5"),
    "hostile-websocket": Proof("200,000 over WebSocket", "flatmq_rigs fuzz-long --link websocket"),
    "broken-streams": Proof("4,000 broken TLS streams", "flatmq_rigs broken-streams"),
    "hostile-packs": Proof(
        "200,000 hostile messages in the pipeline",
        "flatmq_rigs fuzz-packs --documents 200000",
    ),
    "powercut": Proof("a power cut at every write", "flatmq_rigs powercut"),
    "soak": Proof("1,000,000 messages each way", "flatmq_rigs soak"),
    "soak-tls": Proof("200,000 over TLS", "flatmq_rigs soak --link tls"),
    "soak-websocket": Proof("200,000 over WebSocket", "flatmq_rigs soak --link websocket"),
    "crash": Proof("8 kills of each part of the pipeline", "flatmq_rigs crash"),
    "live": Proof("20,000 messages a second for 3 minutes", "flatmq_rigs live"),
    "home-assistant": Proof(
        "boards in Home Assistant itself", "flatmq_rigs home-assistant", writes=False
    ),
    "emulated": Proof(
        "sketches on an emulated Pico W", "flatmq_rigs emulated", writes=False, emulates="pico_w"
    ),
    "emulated-esp32": Proof(
        "sketches on an emulated ESP32",
        "flatmq_rigs emulated --board esp32", writes=False, emulates="esp32",
    ),
    "emulated-updates": Proof(
        "updates over MQTT of an emulated Pico W, with 20 power cuts",
        "flatmq_rigs emulated-updates", emulates="pico_w",
    ),
    "emulated-firmware": Proof(
        "updates of the firmware of an emulated ESP32",
        "flatmq_rigs emulated-firmware", emulates="esp32-OTA",
    ),
    "tls-full-heap": Proof(
        "100 reconnects over TLS in a full heap, on an emulated Pico W",
        "flatmq_rigs tls-full-heap", emulates="pico_w",
    ),
    "board": Proof(
        "the board tests on an emulated Pico W", "flatmq_rigs board", emulates="pico_w"
    ),
    "board-esp32": Proof(
        "the board tests on an emulated ESP32", "flatmq_rigs board", emulates="esp32"
    ),
}  # fmt: skip
"""Each proof by name, in the order in which they run."""


Row = tuple[str, str, str, str, str]
"""The cells of a proof that has run, the last two "ok" or why not, and the commit."""


def commit() -> str:
    """Return the short name of the commit, with + if code has changed since; "-" without git."""
    head = ["git", "rev-parse", "--short", "HEAD"]
    changed = ["git", "diff", "--name-only", "HEAD", "--", "lib", "tools", "host_tests", "boards"]
    try:
        name, files = (
            subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True).stdout
            for command in (head, changed)
        )
    except OSError:
        return results.NONE
    return name.strip() + "+" * bool(files) if name else results.NONE


def before(document: Path | None) -> dict[str, Row]:
    """Return the rows of the table in the document, by name."""
    text = document.read_text("utf-8") if document and document.exists() else ""
    begin, end = results.markers(SECTION)
    lines = text.partition(begin)[2].partition(end)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    known = [cells for cells in rows if len(cells) == 5 and cells[0] in PROOFS]
    return {name: (name, *rest) for name, *rest in known}  # type: ignore[misc]


def counted(amount: str, log: str) -> str:
    """Return how much was done; after pytest, with the number of tests from its last line."""
    found = re.findall(r"^=*\s*(\d+ (?:passed|failed)\b.*?) in [\d.]+s", log, re.MULTILINE)
    return f"{amount}: {found[-1]}" if found else amount


def run(name: str, proof: Proof, document: Path | None, console: Console) -> Row:
    """Run a proof in a process of its own, whose output goes to a file, and show that it runs."""
    environment = None
    if proof.emulates:
        try:
            environment = {**os.environ, "EMULATE": emulated.firmware(proof.emulates)}
        except emulated.NotHereError as error:
            return name, proof.amount, results.NONE, f"not run: {error}", results.NONE
    command = [sys.executable, "-m", *proof.command.split()]
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
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
    said = log.read_text("utf-8", "replace")
    if status == os.EX_UNAVAILABLE:
        return name, proof.amount, results.NONE, f"not run: {said.strip()}", results.NONE
    amount = counted(proof.amount, said)
    result = "ok" if status == 0 else f"FAILED ({status})"
    return name, amount, f"{(time.monotonic() - began) / 60:.1f}", result, commit()


def has_failed(row: Row) -> bool:
    return row[3].startswith("FAILED")


def section(rows: Sequence[Row]) -> str:
    failed = sum(map(has_failed, rows))
    head = ("proof", "how much", "minutes", "result", "commit")
    return (
        "## Proofs\n\n"
        f"`python -m flatmq_rigs proofs`: {len(rows)} proofs, {failed} failed. "
        "A row without a commit was measured with an earlier client.\n\n"
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
        if document:
            known = before(document)
            if row[2] != results.NONE or name not in known:  # one that cannot run here stays
                known[name] = row
            table = section([known[each] for each in PROOFS if each in known])
            results.write(document, SECTION, table, inline=True)
        if has_failed(row):
            log = (LOGS / f"{name}.log").relative_to(ROOT)
            console.print(f"its output: {log}", markup=False, highlight=False)
    console.print(section(rows), markup=False, highlight=False, soft_wrap=True)
    return int(any(map(has_failed, rows)))
