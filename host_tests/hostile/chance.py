"""How many hostile packets does the client bear? Cases by chance, judged by the oracle.

`chance.py --packets N` goes on until N packets that were changed have been fed, in several
processes with a seed each, and then has MicroPython run a share of them: with the same outcome,
and with the heap as it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import grammar
import replay
import search
from flatmq_tools import bytecode, interpreter, results

HERE = Path(__file__).parent
HEAP = "2m"  # of MicroPython; the harness takes most of it
SEGMENTS = 12  # of a case, at the most: in a long one the two ordinary sessions weigh less
BATCH = 200  # cases that MicroPython is given at a time
EVERY = 0.5  # s between two reports of a process

Counts = Counter[str]
WIDE = "[progress.description]{task.description}"


class Finding(Exception):
    """A case that went wrong, told for people."""


def made(seed: int) -> Iterator[grammar.Case]:
    """Cases without end; the same ones for the same seed."""
    chance = random.Random(seed)

    def pick(n: int) -> int:
        return int(chance.random() * n)

    while True:
        yield grammar.case(pick, SEGMENTS)


def judge(case: grammar.Case) -> Counts:
    """What came of a case. Finding when that is wrong."""
    try:
        with search.watched():
            oracle = search.judged(case.data)
    except (Exception, search.drive.Stuck) as e:
        raise Finding(search.told(case.data) or repr(e)) from e
    return Counter(
        {
            "cases": 1,
            "made": case.packets,
            "changed": case.changed,
            "judged": oracle.packets,
            "streams": oracle.streams,
            "delivered": oracle.delivered,
            **{f"ended: {kind}": n for kind, n in oracle.ended.items()},
        }
    )


def work(seed: int, packets: int, reports: multiprocessing.Queue) -> None:
    """Judges cases with so many changed packets; what was found goes to `reports`."""
    counts: Counts = Counter()
    left = packets
    told = time.monotonic()
    for case in made(seed):
        try:
            counts += judge(case)
        except Finding as e:
            reports.put(str(e))
            return
        if left - counts["changed"] <= 0 or time.monotonic() - told > EVERY:
            left -= counts["changed"]
            reports.put((counts, left <= 0))
            counts = Counter()
            told = time.monotonic()
            if left <= 0:
                return


def on_desk(seeds: list[int], packets: int, shown: Progress) -> Counts:
    """So many changed packets, with a process for each seed."""
    reports: multiprocessing.Queue = multiprocessing.Queue()
    share = -(-packets // len(seeds))
    workers = [
        multiprocessing.Process(target=work, args=(seed, share, reports), daemon=True)
        for seed in seeds
    ]
    for worker in workers:
        worker.start()
    total: Counts = Counter()
    task = shown.add_task("CPython, with the oracle", total=packets)
    working = len(workers)
    try:
        while working:
            try:
                report = reports.get(timeout=2 * search.HANGS)
            except queue.Empty:
                raise Finding("a process says nothing any more") from None
            if isinstance(report, str):
                raise Finding(report)
            counts, done = report
            total += counts
            working -= done
            shown.update(task, completed=total["changed"])
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return total


def compare(cases: list[bytes]) -> list[str]:
    """Has MicroPython run these cases; tells each of which the outcome is another one than on
    CPython, or after which the heap holds more."""
    command = interpreter.command(HEAP)
    if command is None:
        raise interpreter.InterpreterError(interpreter.MISSING)
    with tempfile.NamedTemporaryFile(suffix=".cases") as file:
        for data in cases:
            file.write(len(data).to_bytes(4, "big") + data)
        file.flush()
        done = subprocess.run(
            [*command, str(HERE / "replay.py"), file.name],
            env=interpreter.environment(bytecode.library(), HERE),
            capture_output=True,
            text=True,
            timeout=60 + 5 * len(cases),
            check=False,
        )
    lines = done.stdout.splitlines()
    wrong = []
    for data, line in zip(cases, lines, strict=False):
        checksum, growth, *error = line.split(" ", 2)
        here = replay.outcome(data)
        if (int(checksum), "".join(error).strip()) != (here[0], here[2]) or int(growth) > 0:
            wrong.append(f"case {data.hex()}\nMicroPython: {line}\nCPython:     {here}")
    if len(lines) != len(cases):
        wrong.append(f"{len(lines)} of {len(cases)} cases: {done.stderr[-2000:]}")
    return wrong


def on_device(seed: int, packets: int, shown: Progress) -> Counts:
    """Cases with so many changed packets on both interpreters."""
    total: Counts = Counter()
    task = shown.add_task("MicroPython, with its heap", total=packets)
    cases: list[bytes] = []
    for case in made(seed):
        cases.append(case.data)
        total += Counter({"cases": 1, "made": case.packets, "changed": case.changed})
        if len(cases) == BATCH or total["changed"] >= packets:
            wrong = compare(cases)
            if wrong:
                raise Finding("\n".join(wrong))
            cases.clear()
            shown.update(task, completed=total["changed"])
        if total["changed"] >= packets:
            return total
    raise AssertionError("made() ends")


def section(seeds: list[int], desk: Counts, device: Counts, seconds: float) -> str:
    """The figures as Markdown, of a run in which nothing was found."""
    ended = [(f"connections that ended: {kind[7:]}", n)
             for kind, n in sorted(desk.items()) if kind.startswith("ended: ")]  # fmt: skip
    rows = [
        ("packets that were changed", desk["changed"], device["changed"]),
        ("packets in the same streams, as made", desk["made"], device["made"]),
        ("cases", desk["cases"], device["cases"]),
        ("connections", desk["streams"], None),
        ("packets that the strict decoder judged", desk["judged"], None),
        ("messages delivered", desk["delivered"], None),
        *((what, n, None) for what, n in ended),
    ]
    lines = [(what, f"{a:,}", "" if b is None else f"{b:,}") for what, a, b in rows]
    named = ", ".join(map(str, seeds))
    return f"""\
## Hostile bytes by chance

`make fuzz-long`: seeds {named} on CPython, {seeds[-1] + 1} on MicroPython; {seconds:,.0f} s.
It ends at the first finding, and then fails and writes nothing. This one came to its end: no
exception but the client's own, no hang, no message or byte written that the oracle refuses, no
two outcomes on the two interpreters, and nothing held afterwards that was not held before.

Streams of right packets for whatever the client waits for are spoilt in one to five places: bits,
flags, lengths, topic names, identifiers, packets lost, doubled, cut, mixed and in another order.
Between them the application publishes, subscribes and raises in its handlers, and the network is
slow or breaks. On CPython an oracle over a strict decoder judges every byte that the client
writes and every call of a handler. On MicroPython (heap {HEAP} with the harness) the events must
be the same, and the heap must hold no more afterwards.

{results.table(("", "CPython", "MicroPython"), lines)}
"""


def main() -> int:
    """Runs them, and tells; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="chance.py", description=__doc__)
    parser.add_argument("--packets", type=int, default=100_000, help="changed ones, on CPython")
    parser.add_argument("--device", type=int, default=2_000, help="the same on MicroPython")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="the file that the figures go to")
    options = parser.parse_args()
    seeds = [options.seed + i for i in range(options.processes)]
    console = Console()
    began = time.monotonic()
    columns = (
        TextColumn(WIDE), BarColumn(), TextColumn("{task.completed:,} of {task.total:,}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    try:
        with Progress(*columns, console=console) as shown:
            desk = on_desk(seeds, options.packets, shown)
            device = on_device(seeds[-1] + 1, options.device, shown)
    except Finding as e:
        console.print(str(e), markup=False, highlight=False, soft_wrap=True)
        console.print("the same again: host_tests/hostile/search.py --case HEX", markup=False)
        return 1
    text = section(seeds, desk, device, time.monotonic() - began)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if options.results:
        results.write(options.results, "fuzz", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
