"""Cuts the power of a spool at every write to its flash, and measures what it wears."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.progress import Progress

from . import interpreter
from .results import number, table, write

ROOT = Path(__file__).parents[2]
HERE = ROOT / "host_tests" / "spool"
HEAP = "16m"  # the flash chips are in it
DEADLINE = 1800  # seconds for one sweep

WAYS = [
    ("refuse", 128, True),
    ("refuse", 0, True),
    ("drop", 128, True),
    ("drop", 0, True),
    ("drop", 128, False),
]  # `full`, `head` and `durable` of a spool
SLICES = 8  # the second sweep is done in so many parts
CYCLES = 100_000  # of a block of NOR flash
BLOCK = 4  # KB
MINUTES = 60 * 24 * 365  # of a year


class PowerCutError(RuntimeError):
    """A promise was broken; the text is what the run printed."""


def _seen(script: str, *arguments: object) -> list[str]:
    command = interpreter.command(HEAP)
    if command is None:
        raise PowerCutError(interpreter.MISSING)
    done = subprocess.run(
        [*command, str(HERE / script), *map(str, arguments)],
        env=interpreter.environment(ROOT / "lib", HERE),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines or not lines[-1].startswith("SEEN"):
        told = "\n".join([*lines[-3:], *done.stderr.splitlines()[-3:]])
        raise PowerCutError(f"{script} {arguments}: {told}")
    return lines[-1].split()[1:]


def sweep(
    full: str, head: int, durable: bool, first: int = 1, step: int = 1, second: int = 0
) -> list[int]:
    """Cuts at every `step`-th write from `first` on, and where `second` is not 0, again at each
    write of what follows. Returns the writes of the scenario, cuts, handlers that were
    interrupted and called again, readings published and dropped, and in all runs together those
    that had gone past the flash (`durable` False) and went with the power; and of all runs the
    readings lost, torn, delivered twice at QoS 2, out of order, and the incoming messages that
    were not handled once."""
    return [
        int(word) for word in _seen("powercut.py", full, head, int(durable), first, step, second)
    ]


def without_room(full: str, head: int) -> list[int]:
    """In a file system that fills up: readings accepted, refused, dropped, lost, torn, out of
    order, and taken of five once there is room."""
    return [int(word) for word in _seen("full.py", full, head)]


def wear(prog: int, head: int, size: int, way: str) -> list[float]:
    """Erases and bytes programmed per record, erases of the block worn most, heap per append and
    per record handed over, and the same where a segment begins."""
    return [float(word) for word in _seen("wear.py", prog, head, size, way)]


def _wear_rows() -> Iterator[list[str]]:
    for prog, heads in ((32, (0, 128)), (256, (0, 512))):
        for head in heads:
            for size in (16, 64, 200):
                for way in ("online", "offline"):
                    seen = wear(prog, head, size, way)
                    names = [str(prog), str(head), str(size), way]
                    yield [" · ".join(names), *map(number, seen)]


def _years(erases: float, kilobytes: int) -> float:
    return kilobytes / BLOCK * CYCLES / erases / MINUTES


def main(results: Path, every: int) -> int:
    """Everything, with progress; writes the section "spool". A second cut is made after every
    `every`-th first one."""
    rows = []
    with Progress() as progress, ThreadPoolExecutor(2) as pool:
        jobs: list[tuple[str, Future[list[int]]]] = []
        for full, head, durable in WAYS:
            name = " · ".join([full, f"head {head}", *([] if durable else ["durable=False"])])
            jobs.append((f"{name} · one cut", pool.submit(sweep, full, head, durable)))
            for i in range(SLICES):
                job = pool.submit(sweep, full, head, durable, 1 + i * every, SLICES * every, 1)
                jobs.append((f"{name} · two cuts", job))
        task = progress.add_task("power cuts", total=len(jobs))
        sums: dict[str, list[int]] = {}
        for name, job in jobs:
            seen = job.result()
            added = [a + b for a, b in zip(sums.get(name, [0] * len(seen)), seen, strict=True)]
            sums[name] = [seen[0], *added[1:]]
            progress.advance(task)
        for name, s in sums.items():
            rows.append([name, *map(number, [*s[:2], *s[6:], s[2], s[5]])])
        worn = list(_wear_rows())
    best = wear(32, 128, 64, "online")[0]
    worst = wear(32, 128, 64, "offline")[0]
    text = "\n\n".join(
        [
            "## Spool",
            "`make powercut`: MicroPython's littlefs on flash in RAM, which stops at the n-th "
            "program or erase, for every n of a scenario, once before it and once half done; then "
            "a reboot, and where it says two cuts, a second one at every write of what follows, "
            f"after {'each' if every == 1 else f'every {every}.'} of the first ones. "
            "The run ends with an error at the first broken promise. A handler that the cut "
            "interrupted, or whose end was not noted yet, is called again. With `durable=False` "
            "readings go with the power that were sent past the flash and not acknowledged: they "
            "are in the last column, and no other reading may be.",
            table(
                [
                    "",
                    "writes",
                    "cuts",
                    "lost",
                    "torn",
                    "twice at QoS 2",
                    "out of order",
                    "incoming not once",
                    "interrupted handlers again",
                    "gone with the power",
                ],
                rows,
            ),
            "Wear per reading, blocks of 4 KB, and bytes of heap asked for per append and per "
            "record handed to the client: the median, and the most, where a segment begins. "
            "Online is one reading at a time, acknowledged before the next.",
            table(
                [
                    "prog size · head · payload",
                    "erases",
                    "bytes programmed",
                    "most worn block",
                    "heap: append",
                    "hand over",
                    "most: append",
                    "hand over",
                ],
                worn,
            ),
            f"With blocks of {CYCLES:,} cycles and a partition of 256 KB, worn evenly, one "
            f"reading of 64 bytes a minute wears the flash out in {number(_years(best, 256))} "
            f"years when the broker is there, and in "
            f"{number(_years(worst, 256))} years when it never is.",
        ]
    )
    write(results, "spool", text)
    print(text)
    return 0
