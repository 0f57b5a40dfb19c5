"""Measure flatmq beside other clients, in one run: over a socket, and over a link in memory."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flatmq_rigs import emulated
from flatmq_rigs.bench import work
from flatmq_rigs.bench.clients import FLATMQ, RATE, ROUNDS, Clients
from flatmq_rigs.bench.source import Source
from flatmq_rigs.results import number, table, write
from flatmq_tools import broker, interpreter
from flatmq_tools.errors import ToolError

SECTION = "bench"  # of the document
_WIDTH = 160  # columns, for a log; a terminal knows its own


def targets(clients: Clients, alone: work.Work) -> list[list[str]]:
    """Return the rows of the table of targets of flatmq on MicroPython."""
    both = work.BITS
    slowest = "slowest operation over a link in memory"
    peer = [alone.worst(bits, work.FLATMQ, work.UMQTT) for bits in both]
    five = [alone.worst(bits, work.FIVE, work.FLATMQ) for bits in both]
    masked = alone.worst(both[0], work.WEBSOCKET, work.FLATMQ)
    ratios = [clients.ratio(FLATMQ, name) for name in ("publish", "publish_burst", "receive")]
    found = [
        ("publish QoS 0, each sent off with flush()", "≤", 3, "× floor", ratios[0]),
        ("publish QoS 0 in bursts of 16", "≤", 1.5, "× floor", ratios[1]),
        ("receive QoS 0", "≤", 4, "× floor", ratios[2]),
        (f"{slowest}, {both[0]}", "≤", 1, "× umqtt.simple", peer[0]),
        (f"{slowest}, {both[1]}", "≤", 1, "× umqtt.simple", peer[1]),
        (f"… in MQTT 5, {both[0]}", "≤", 1.15, "× 3.1.1", five[0]),
        (f"… in MQTT 5, {both[1]}", "≤", 1.15, "× 3.1.1", five[1]),
        (f"publish QoS 0 over a WebSocket, {both[0]}", "≤", 2.5, "× TCP", masked),
        ("QoS 1, several in flight", "≥", 15_000, "per s", clients.median(FLATMQ, RATE)),
        ("writes per publish", "≤", 1, "", clients.calls[FLATMQ, "publish"][0]),
        ("writes per publish in bursts", "≤", 1, "", clients.calls[FLATMQ, "publish_burst"][0]),
        ("reads per message in a burst", "≤", 0.25, "", clients.calls[FLATMQ, "receive"][1]),
    ]
    return [
        [text, f"{sign} {number(limit)} {unit}".strip(), number(value),
         "met" if value is not None and (value >= limit if sign == "≥" else value <= limit)
         else "MISSED"]
        for text, sign, limit, unit, value in found
    ]  # fmt: skip


def _first_line(*command: str) -> str:
    """Return the first line that a program prints. Raises ToolError if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{command[0]} does not run: {error}") from error
    return done.stdout.partition("\n")[0].strip()


def _facts() -> list[str]:
    command = interpreter.find()
    if command is None:
        raise ToolError(interpreter.MISSING)
    ask = (
        "import sys; i = sys.implementation; v = '.'.join(str(n) for n in i.version if n != '');"
        "print(v, 'of', sys.version.split()[-1] + ',', i._machine)"
    )
    about = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", about.read_text() if about.is_file() else "")
    processor = model[1] if model else platform.processor() or platform.machine()
    return [
        f"- date: {datetime.date.today().isoformat()}",
        f"- machine: {os.cpu_count()} × {processor}, {platform.system()}",
        f"- interpreter: {_first_line(*command, '-c', ask)}",
        f"- broker: {_first_line(broker.find_mosquitto() or 'mosquitto', '-h')}",
    ]


def main(*, rounds: int = ROUNDS, results: Path | None = None, build: Path = Path("build")) -> int:
    """Measure, print the tables, write them into `results` if given; return 0.

    Raises ToolError without an interpreter, BrokerError without a broker, PeerError without
    umqtt.simple.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    build = build.resolve()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Source() as source,
        broker.mosquitto() as running,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        facts = [*_facts(), f"- rounds: {rounds}, alternating; medians"]
        clients = Clients(build, source.port, running.port)
        clients.measure(rounds, progress)
        alone = work.measure(build)
        try:
            work.on_board(alone, emulated.firmware("pico_w"), build)
        except emulated.NotHereError as error:
            alone.notes.append(f"{work.BOARD}: {error}")
    goals = targets(clients, alone)
    head = ["flatmq on MicroPython", "target", "measured", ""]
    parts = ["## Side by side", "\n".join(facts), "### Targets", table(head, goals)]
    sections = {
        SECTION: "\n\n".join([*parts, *clients.markdown()]),
        work.SECTION: alone.markdown(),
    }
    for name, section in sections.items():
        console.print(Markdown(section))
        if results:
            write(results, name, section)
    for text, *_, met in goals:
        if met == "MISSED":
            console.print(f"missed: {text}", markup=False)
    return 0
