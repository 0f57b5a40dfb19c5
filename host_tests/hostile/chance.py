"""Feed the client hostile packets by chance, and have the oracle judge what it does.

`python -m hostile.chance --packets N` goes on until N packets that were changed have been fed, in
several processes with a seed each, or until `--minutes` are over. Then it has MicroPython run a
share of them: with the same outcome, and with the heap as it was. With `--link websocket` they
come in the frames of a WebSocket.
"""

import argparse
import itertools
import math
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flatmq_rigs import results
from flatmq_tools import bytecode, interpreter
from hostile import grammar, judge, replay

HERE = Path(__file__).parent
HEAP = "2m"  # of MicroPython; the harness takes most of it
# In a case, at most: in a long one the two ordinary sessions weigh less.
SEGMENTS, SEGMENTS_5 = 12, 24
BATCH = 200  # cases that MicroPython is given at a time
SHARE = 20  # cases that a process judges at a time

Counts = Counter[str]
TITLES = {"tcp": "", "websocket": ", over WebSocket"}
COUNTED = {
    "frames": "frames of the server",
    "frames changed": "frames, and answers to the upgrade, that were changed",
    "upgrades that failed": "WebSockets that did not open",
    "closed for a broken rule": "WebSockets ended for a broken rule",
    "closed by the peer": "WebSockets ended by a Close frame",
    "pongs": "pings answered",
}


def made(seed: int | str, version: int = 4, segments: int = 0) -> Iterator[grammar.Case]:
    """Cases without end; the same ones for the same seed."""
    chance = random.Random(seed)
    segments = segments or (SEGMENTS if version < 5 else SEGMENTS_5)

    def pick(n: int) -> int:
        return int(chance.random() * n)

    while True:
        yield grammar.case(pick, segments, version)


def judged(case: grammar.Case, link: str = "tcp") -> Counts:
    """Return what came of a case, in numbers. Finding when it is wrong."""
    counts = judge.figures(case.data, link)
    return counts + Counter({"made": case.packets, "changed": case.changed})


def work(seed: str, link: str, version: int) -> Counts:
    """Judge a few cases."""
    total: Counts = Counter()
    for case in itertools.islice(made(seed, version), SHARE):
        total += judged(case, link)
    return total


def on_desk(
    seeds: list[int],
    packets: int,
    link: str,
    shown: Progress,
    version: int = 4,
    seconds: float = math.inf,
) -> Counts:
    """Judge this many changed packets, or fewer in that time, with a process for each seed."""
    until = time.monotonic() + seconds
    total: Counts = Counter()
    task = shown.add_task("CPython, with the oracle", total=packets)
    # A fork would inherit the threads' locks and the signal handlers of whoever calls this.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(seeds), mp_context=fresh) as pool:
        for turn in itertools.count():
            named = [f"{seed} {turn}" for seed in seeds]
            for counts in pool.map(work, named, itertools.repeat(link), itertools.repeat(version)):
                total += counts
            shown.update(task, completed=total["changed"])
            if total["changed"] >= packets or time.monotonic() > until:
                return total
    raise AssertionError("turns end")


def compare(batch: list[bytes], link: str = "tcp") -> list[str]:
    """Have MicroPython run these cases, and report each that differs from CPython.

    The outcome is another one, or the heap holds more afterwards.
    """
    command = interpreter.command(HEAP)
    if command is None:
        raise interpreter.InterpreterError(interpreter.MISSING)
    with tempfile.NamedTemporaryFile(suffix=".cases") as file:
        for data in batch:
            file.write(len(data).to_bytes(4, "big") + data)
        file.flush()
        done = subprocess.run(
            [*command, str(HERE / "replay.py"), file.name, link],
            env=interpreter.environment(bytecode.library(), HERE.parent),
            capture_output=True,
            text=True,
            timeout=60 + 5 * len(batch),
            check=False,
        )
    lines = done.stdout.splitlines()
    wrong = []
    for data, line in zip(batch, lines, strict=False):
        checksum, growth, *error = line.split(" ", 2)
        here = replay.outcome(data, replay.runner(link))
        if (int(checksum), "".join(error).strip()) != (here[0], here[2]) or int(growth) > 0:
            wrong.append(f"case {data.hex()}\nMicroPython: {line}\nCPython:     {here}")
    if len(lines) != len(batch):
        wrong.append(f"{len(lines)} of {len(batch)} cases: {done.stderr[-2000:]}")
    return wrong


def on_device(seed: int, packets: int, link: str, shown: Progress, version: int = 4) -> Counts:
    """Run cases with so many changed packets on both interpreters."""
    total: Counts = Counter()
    task = shown.add_task("MicroPython, with its heap", total=packets)
    batch: list[bytes] = []
    for case in made(seed, version):
        batch.append(case.data)
        total += Counter({"cases": 1, "made": case.packets, "changed": case.changed})
        if len(batch) == BATCH or total["changed"] >= packets:
            wrong = compare(batch, link)
            if wrong:
                raise judge.Finding("\n".join(wrong))
            batch.clear()
            shown.update(task, completed=total["changed"])
        if total["changed"] >= packets:
            return total
    raise AssertionError("made() ends")


def section(
    seeds: list[int],
    desk: Counts,
    device: Counts,
    seconds: float,
    link: str = "tcp",
    version: int = 4,
    minutes: float | None = None,
) -> str:
    """Return the figures of a run in which nothing was found, as Markdown.

    `minutes`: after which it was ended, if it was.
    """
    ended = {name: f"connections that {name}" for name in sorted(desk) if name[:7] == "ended: "}
    both = {
        "changed": "packets that were changed",
        "made": "packets in the same streams, as made",
        "cases": "cases",
    }
    alone = {
        "streams": "connections",
        "judged": "packets that the strict decoder judged",
        "delivered": "messages delivered",
        **ended,
        **(COUNTED if link == "websocket" else {}),
    }
    lines = [(what, f"{desk[name]:,}", f"{device[name]:,}") for name, what in both.items()]
    lines += [(what, f"{desk[name]:,}", "") for name, what in alone.items()]
    named = ", ".join(map(str, seeds))
    command = "python -m flatmq_rigs fuzz-long" + ("" if link == "tcp" else f" --link {link}")
    command += " --version 5" if version == 5 else ""
    early = ""
    if minutes is not None:
        command += f" --minutes {minutes:g}"
        early = f"On CPython it was ended after {minutes:g} minutes, with the packets below.\n"
    return f"""\
## Hostile bytes by chance{", MQTT 5" if version == 5 else ""}{TITLES[link]}

`{command}`: seeds {named} on CPython, {seeds[-1] + 1} on MicroPython; {seconds:,.0f} s.
{early}Nothing was found.

{results.table(("", "CPython", "MicroPython"), lines)}
"""


def main() -> int:
    """Run them, and report it; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="hostile.chance", description=__doc__)
    parser.add_argument("--packets", type=int, default=100_000, help="changed ones, on CPython")
    parser.add_argument("--device", type=int, default=2_000, help="the same on MicroPython")
    parser.add_argument("--link", choices=judge.LINKS, default="tcp", help="default: tcp")
    parser.add_argument(
        "--version", type=int, choices=(4, 5), default=4, help="of MQTT; 4 is 3.1.1 and 3.1"
    )
    parser.add_argument(
        "--minutes", type=float, help="end on CPython after so many, with fewer packets"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="the file that the figures go to")
    options = parser.parse_args()
    seeds = [options.seed + i for i in range(options.processes)]
    link, version = options.link, options.version
    console = Console()
    began = time.monotonic()
    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,}"),
        TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    try:
        with Progress(*columns, console=console) as shown:
            limit = math.inf if options.minutes is None else options.minutes * 60
            desk = on_desk(seeds, options.packets, link, shown, version, limit)
            device = on_device(seeds[-1] + 1, options.device, link, shown, version)
    except judge.Finding as e:
        console.print(str(e), markup=False, highlight=False, soft_wrap=True)
        again = f"python -m hostile.judge --link {link} --case HEX"
        console.print(f"the same again: {again}", markup=False, soft_wrap=True)
        return 1
    seconds = time.monotonic() - began
    is_cut = options.minutes is not None and desk["changed"] < options.packets
    minutes = options.minutes if is_cut else None
    text = section(seeds, desk, device, seconds, link, version, minutes)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    if options.results:
        name = "fuzz-v5" if options.version == 5 else "fuzz"
        name += {"tcp": "", "websocket": "-websocket"}[options.link]
        results.write(options.results, name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
