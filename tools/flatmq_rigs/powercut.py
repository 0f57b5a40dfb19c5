"""Cut the power of a spool at every write to its flash, and measure the wear."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.progress import Progress

from flatmq_tools import interpreter
from flatmq_tools.bytecode import library
from flatmq_tools.errors import ToolError

from .results import number, table, write

ROOT = Path(__file__).parents[2]
HERE = ROOT / "host_tests" / "spool"
HEAP = "16m"  # the flash chips are in it
DEADLINE = 1800  # seconds for one sweep

WAYS = [
    ("refuse", 128, True, 4),
    ("refuse", 0, True, 4),
    ("drop", 128, True, 4),
    ("drop", 0, True, 4),
    ("drop", 128, False, 4),
    ("refuse", 128, True, 5),
    ("drop", 128, True, 5),
    ("drop", 128, False, 5),
]  # `full`, `head` and `durable` of a spool, and `version` of its client
SLICES = 8  # the second sweep is done in so many parts
CYCLES = 100_000  # of a block of NOR flash
BLOCK = 4  # KB
MINUTES = 60 * 24 * 365  # of a year


def _seen(script: str, *arguments: object) -> list[str]:
    try:
        *_, last = interpreter.run(
            HEAP, HERE / script, *arguments, path=(library(), HERE), timeout=DEADLINE
        )
    except interpreter.InterpreterError as error:
        raise ToolError(f"{script} {arguments}: {error}") from error
    if not last.startswith("SEEN"):
        raise ToolError(f"{script} {arguments}: {last}")
    return last.split()[1:]


def sweep(
    full: str,
    head: int,
    durable: bool,
    first: int = 1,
    step: int = 1,
    second: int = 0,
    version: int = 4,
) -> list[int]:
    """Cut the power at every `step`-th write from `first` on.

    If `second` is not 0, cut it again at each write of what follows. `version` is 4, or 5 for
    MQTT 5.

    Returns the number of writes, of cuts, of handlers that were interrupted and called again, of
    readings published and dropped in one run, and in all runs together of readings that bypassed
    the flash (`durable` False) and were lost with the power; then, in all runs, of readings lost,
    torn, delivered twice at QoS 2 and out of order, and of incoming messages not handled once.
    """
    arguments = (full, head, int(durable), first, step, second, version)
    return [int(word) for word in _seen("powercut.py", *arguments)]


def without_room(full: str, head: int) -> list[int]:
    """Fill the file system, and return what became of the readings.

    Returns the number of readings accepted, refused, dropped, lost, torn, out of order, and
    accepted of five more once there is room.
    """
    return [int(word) for word in _seen("full.py", full, head)]


def wear(prog: int, head: int, size: int, way: str) -> list[float]:
    """Measure the wear of the flash and the heap per record.

    Returns erases and bytes programmed per record, erases of the block worn most, bytes of
    heap per append and per record handed over, and the same where a segment begins.
    """
    return [float(word) for word in _seen("wear.py", prog, head, size, way)]


def steady(qos: int, version: int) -> list[int]:
    """Send readings at that QoS, and receive messages at QoS 2.

    Returns the bytes of heap that the spool and the client request for both: the median, the
    maximum, and the number of rounds.
    """
    return [int(word) for word in _seen("steady.py", qos, version)]


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


def main(results: Path | None) -> int:
    """Run everything with progress, print it, and write the section "spool" of the results."""
    rows = []
    columns = [
        *("", "writes", "cuts", "lost", "torn", "twice at QoS 2", "out of order"),
        *("incoming not once", "interrupted handlers again", "lost with the power"),
    ]
    with Progress() as progress, ThreadPoolExecutor(2) as pool:
        jobs: list[tuple[str, Future[list[int]]]] = []
        for full, head, durable, level in WAYS:
            parts = [full, f"head {head}", *([] if durable else ["durable=False"])]
            name = " · ".join([*parts, *(["MQTT 5"] if level == 5 else [])])
            job = pool.submit(sweep, full, head, durable, version=level)
            jobs.append((f"{name} · one cut", job))
            for i in range(SLICES):
                job = pool.submit(sweep, full, head, durable, 1 + i, SLICES, 1, version=level)
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
            "`python -m flatmq_rigs powercut`: littlefs on flash in RAM loses power before and "
            "in the middle of every write of a scenario, and in the rows with two cuts again at "
            "every write after each cut. Only readings that bypassed the flash (`durable=False`) "
            "may be lost.",
            table(columns, rows),
            "### Wear, and heap per record",
            table(
                [
                    *("prog size · head · payload", "erases", "bytes programmed"),
                    *("most worn block", "heap: append", "hand over"),
                    *("most: append", "hand over"),
                ],
                worn,
            ),
            f"One reading of 64 bytes per minute wears out 256 KB of flash ({CYCLES:,} cycles) in "
            f"{number(_years(best, 256))} years if the broker is always there, in "
            f"{number(_years(worst, 256))} if it never is.",
        ]
    )
    if results:
        write(results, "spool", text)
    print(text)
    return 0
