"""Measure flatmq, the other clients and the floor, side by side on this machine."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flatmq_rigs import emulated
from flatmq_rigs.bench import work
from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import ALL, CPU, HELD, OPERATIONS, RATE, SMALLEST, TARGETS, Results
from flatmq_rigs.bench.peers import PeerError
from flatmq_rigs.bench.report import SECTION, Report
from flatmq_rigs.bench.runner import Runner
from flatmq_rigs.bench.source import Source
from flatmq_rigs.results import write
from flatmq_tools import broker, interpreter
from flatmq_tools.errors import ToolError

ROUNDS = 5
CPU_MS, RATE_MS = 150, 1500  # that a run of each takes, at least
HEAPS_KB = (4, 256)  # the smallest heap is looked for between these
_HELD_RUNS = 5
_WIDTH = 160  # columns, for a log; a terminal knows its own


class Bench:
    """One run: it measures the clients, and collects the results."""

    def __init__(self, build: Path, source_port: int, broker_port: int) -> None:
        self.results = Results()
        self._runner = Runner(build)
        self._source_port = source_port
        self._broker_port = broker_port

    def prepare(self, client: Client) -> bool:
        """Return whether the client can be measured; if not, keep the reason."""
        try:
            self._runner.prepare(client)
        except PeerError as error:
            self.results.failures[client.key, ALL] = str(error)
            return False
        return True

    def _measured(self, client: Client, name: str, figure: str, argument: str = "") -> Any:
        """The value of a figure, or None; a failed one is not tried again."""
        place = (client.key, name)
        if place in self.results.failures:
            return None
        port = self._broker_port if figure == RATE else self._source_port
        try:
            return self._runner.measure(client, figure, port, argument)
        except interpreter.InterpreterError as error:
            self.results.failures[place] = str(error)
            return None

    def once(self, client: Client) -> None:
        """Measure what no repetition changes: memory and socket calls.

        But for the memory held: the collector takes stale words on the stack for references now
        and then, and keeps too much, so the least of a few runs counts.
        """
        if client.is_floor:
            return
        once = self.results.once
        held = [self._measured(client, HELD, HELD) for _ in range(_HELD_RUNS)]
        if all(held):
            once[client.key, HELD] = [min(parts) for parts in zip(*held, strict=True)]
        if not client.romfs:
            for figure, operations in (("alloc", OPERATIONS), ("calls", CPU)):
                for operation in operations:
                    name = f"{figure} {operation}"
                    once[client.key, name] = self._measured(client, name, figure, operation)
        once[client.key, SMALLEST] = self._smallest(client)

    def _smallest(self, client: Client) -> int | None:
        """Find the smallest heap, in KB, by halving."""
        low, high = HEAPS_KB
        if not self._runner.fits(client, self._broker_port, high):
            self.results.failures[client.key, SMALLEST] = f"does not work in {high}K"
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._runner.fits(client, self._broker_port, middle):
                high = middle
            else:
                low = middle
        return high - self._runner.image_kb(client)

    def timed(self, client: Client) -> None:
        """Measure what takes time, for one round."""
        if client.romfs:
            return
        figures = [(name, "cpu", f"{name} {CPU_MS}") for name in CPU]
        if not client.is_floor:
            figures.append((RATE, RATE, str(RATE_MS)))
        for name, figure, argument in figures:
            value = self._measured(client, name, figure, argument)
            if isinstance(value, list):
                value = value[0]
            if isinstance(value, float):
                self.results.rounds.setdefault((client.key, name), []).append(value)

    def run(self, clients: Sequence[Client], rounds: int, progress: Progress) -> None:
        """Measure everything; in each round every client has its turn."""
        task = progress.add_task("", total=(1 + rounds) * len(clients))
        for number in range(1 + rounds):
            for client in clients:
                progress.update(task, description=f"round {number}, {client.name}")
                if number:
                    self.timed(client)
                else:
                    self.once(client)
                progress.advance(task)


def _first_line(*command: str) -> str:
    """Return the first line that a program prints. Raises ToolError if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{command[0]} does not run: {error}") from error
    return done.stdout.partition("\n")[0].strip()


def _facts(rounds: int) -> list[tuple[str, str]]:
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
        ("date", datetime.date.today().isoformat()),
        ("machine", f"{os.cpu_count()} × {processor}, {platform.system()}"),
        ("interpreter", _first_line(*command, "-c", ask)),
        ("broker", _first_line(broker.find_mosquitto() or "mosquitto", "-h")),
        ("rounds", f"{rounds}, alternating; medians"),
    ]


def main(
    *,
    rounds: int = ROUNDS,
    results: Path | None = None,
    build: Path = Path("build"),
) -> int:
    """Measure, print the tables, write them into `results` if given; return the exit status.

    1 when a client failed, else 0. Raises ToolError when there is no interpreter, BrokerError when
    there is no broker.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    facts = _facts(rounds)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Source() as source,
        broker.mosquitto() as running,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        build = build.resolve()
        bench = Bench(build, source.port, running.port)
        bench.run([each for each in CLIENTS if bench.prepare(each)], rounds, progress)
        try:
            bench.results.work = work.measure(build)
            work.on_board(bench.results.work, emulated.firmware("pico_w"), build)
        except interpreter.InterpreterError as error:
            bench.results.failures[work.FLATMQ, work.SECTION] = str(error)
        except (PeerError, emulated.NotHereError) as error:
            bench.results.work.notes.append(f"{work.BOARD}: {error}")
    sections = {
        SECTION: Report(CLIENTS, bench.results).markdown(facts),
        work.SECTION: bench.results.work.markdown(),
    }
    for name, section in sections.items():
        console.print(Markdown(section))
        if results:
            write(results, name, section)
    for (key, figure), reason in bench.results.failures.items():
        console.print(f"failed: {key}, {figure}: {reason}", markup=False)
    for target in TARGETS:
        if not target.met(target.value(bench.results)):
            console.print(f"missed: {target.text}", markup=False)
    return 1 if bench.results.failures else 0
