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

from flatmq_rigs.bench import figures, masked, versions
from flatmq_rigs.bench import work as alone
from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import ALL, HELD, SMALLEST, Job, Results
from flatmq_rigs.bench.peers import PeerError
from flatmq_rigs.bench.report import SECTION, Report
from flatmq_rigs.bench.runner import Failed, Runner
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.targets import TARGETS
from flatmq_rigs.results import write
from flatmq_tools import broker, interpreter

ROUNDS = 5
_HELD_RUNS = 5
_WIDTH = 160  # columns, for a log; a terminal knows its own
_HEAPS_KB = (4, 256)  # the smallest heap is looked for between these


class BenchError(RuntimeError):
    """The benchmark cannot be run here; the text says why."""


class Bench:
    """One run: it prepares the clients, measures in alternating rounds, collects the results."""

    def __init__(
        self,
        runner: Runner,
        source_port: int,
        broker_port: int,
        build: Path,
    ) -> None:
        self.results = Results()
        self.versions = versions.Versions()
        self.masked = masked.Masked()
        self._build = build
        self._runner = runner
        self._source_port = source_port
        self._broker_port = broker_port

    def prepare(self, client: Client) -> bool:
        """Return whether the client can be measured; if not, keep the reason."""
        try:
            self._runner.prepare(client)
        except (PeerError, Failed) as error:
            self.results.failures[client.key, ALL] = str(error)
            return False
        return True

    def _run(self, job: Job) -> Any:
        """The value of a job, or None; a failed job is not tried again."""
        place = (job.client.key, job.name)
        if place in self.results.failures:
            return None
        port = self._broker_port if job.broker else self._source_port
        try:
            return self._runner.measure(job.client, job.figure, port, job.argument)
        except Failed as error:
            self.results.failures[place] = str(error)
            return None

    def once(self, job: Job) -> None:
        """Measure what no repetition changes.

        But for the memory held: the collector takes stale words on the stack for references now
        and then, and keeps too much, so the least of a few runs counts.
        """
        value = self._run(job)
        if job.name == HELD and value is not None:
            values = [value, *(self._run(job) or value for _ in range(_HELD_RUNS - 1))]
            value = [min(parts) for parts in zip(*values, strict=True)]
        self.results.once[job.client.key, job.name] = value

    def timed(self, job: Job) -> None:
        value = self._run(job)
        if isinstance(value, list):
            value = value[0]
        if isinstance(value, float):
            self.results.rounds.setdefault((job.client.key, job.name), []).append(value)

    def smallest(self, client: Client) -> None:
        """Find the smallest heap, in KB, by halving."""
        low, high = _HEAPS_KB
        if not self._runner.fits(client, self._broker_port, high):
            self.results.failures[client.key, SMALLEST] = f"does not work in {high}K"
            return
        while high - low > 1:
            middle = (low + high) // 2
            if self._runner.fits(client, self._broker_port, middle):
                high = middle
            else:
                low = middle
        self.results.once[client.key, SMALLEST] = high - self._runner.image_kb(client)

    def in_memory(self, both: bool, progress: Progress) -> None:
        """Measure flatmq at both versions and over a WebSocket, and umqtt.simple if `both`: all
        over a link in memory."""
        task = progress.add_task("over a link in memory", total=2 + both)
        section = versions.SECTION
        try:
            self.versions = versions.measure()
            progress.advance(task)
            section = masked.SECTION
            self.masked = masked.measure()
            progress.advance(task)
            section = alone.SECTION
            if both:
                self.results.work = alone.measure(self._build)
        except (PeerError, alone.WorkError) as error:
            self.results.failures[alone.FLATMQ, section] = str(error)
        progress.advance(task)

    def run(self, clients: Sequence[Client], rounds: int, progress: Progress) -> None:
        """Measure everything; in each round every client has its turn."""
        single = [job for client in clients for job in figures.once(client)]
        heaps = [client for client in clients if not client.is_floor]
        turns = [list(figures.timed(client)) for client in clients]
        steps = len(single) + len(heaps) + rounds * sum(map(len, turns))
        task = progress.add_task("", total=steps)

        def step(text: str) -> None:
            progress.update(task, description=text)

        for job in single:
            step(f"{job.client.name}: {job.name}")
            self.once(job)
            progress.advance(task)
        for client in heaps:
            step(f"{client.name}: smallest heap")
            self.smallest(client)
            progress.advance(task)
        for number in range(1, rounds + 1):
            for turn in turns:
                for job in turn:
                    step(f"round {number}, {job.client.name}: {job.name}")
                    self.timed(job)
                    progress.advance(task)


def chosen(only: Sequence[str]) -> list[Client]:
    """Return the clients with these names or modules, and the floor; all without names."""
    if not only:
        return list(CLIENTS)
    known = {name for client in CLIENTS for name in (client.name, client.module)}
    for name in only:
        if name not in known:
            raise BenchError(f"{name!r} is none of {', '.join(sorted(known))}")
    return [c for c in CLIENTS if c.is_floor or c.name in only or c.module in only]


def _first_line(*command: str) -> str:
    """Return the first line that a program prints. Raises BenchError if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{command[0]} does not run: {error}") from error
    return done.stdout.partition("\n")[0].strip()


def _facts(rounds: int) -> list[tuple[str, str]]:
    command = interpreter.find()
    if command is None:
        raise BenchError(interpreter.MISSING)
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
    only: Sequence[str] = (),
    results: Path | None = None,
    build: Path = Path("build"),
) -> int:
    """Measure, print the tables, write them into `results` if given; return the exit status.

    1 when a client failed, else 0. A run with `only` some clients is only printed. Raises
    BenchError when there is no interpreter or no client of a name, BrokerError when there is no
    broker.
    """
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    clients = chosen(only)
    facts = _facts(rounds)
    beside = "umqtt_simple"
    complete = not only
    ours = complete or any(client.is_ours for client in clients)
    both = not only or {"flatmq", beside} <= {client.module for client in clients}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Source() as source,
        broker.mosquitto() as running,
        Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress,
    ):
        build = build.resolve()
        bench = Bench(Runner(build), source.port, running.port, build)
        ready = [client for client in clients if bench.prepare(client)]
        bench.run(ready, rounds, progress)
        if ours:
            bench.in_memory(both, progress)
    section = Report(clients, bench.results).markdown(facts, with_targets=ours)
    console.print(Markdown(section))
    if both:
        console.print(Markdown(bench.results.work.markdown()))
    if ours:
        console.print(Markdown(bench.versions.markdown()))
        console.print(Markdown(bench.masked.markdown()))
    if results and complete:
        write(results, SECTION, section)
        write(results, alone.SECTION, bench.results.work.markdown())
        write(results, versions.SECTION, bench.versions.markdown())
        write(results, masked.SECTION, bench.masked.markdown())
        console.print(f"written to {results}")
    failed = dict(bench.results.failures)
    for (key, figure), reason in failed.items():
        console.print(f"failed: {key}, {figure}: {reason}", markup=False)
    missed = [t for t in TARGETS if ours and not t.met(t.value(bench.results))]
    slow = [*bench.versions.missed(), *bench.masked.missed()]
    for text in [*(target.text for target in missed), *slow]:
        console.print(f"missed: {text}", markup=False)
    return 1 if failed else 0
