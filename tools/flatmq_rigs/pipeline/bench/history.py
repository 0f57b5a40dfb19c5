"""The cost of a refresh and of a report after 1, 30 and 365 days.

The past is written directly (see `past`). What is measured runs in processes of its own.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console

from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store

from ... import results
from ..processes import CommandError
from .past import MINUTES, STATE, Fleet, include, make

NAME = "history"
DEVICES = 500
BEGIN = 1_761_955_200_000_000
"""The first day is 1 November 2025."""
GOAL = 1.5
"""The last row is at most so many times the first."""
_REFRESHES = 9
_SOON = 0.01  # s between two looks at a report
_MIB = 1 << 20


HistoryError = CommandError
"""It cannot be measured; the text says why."""


@dataclass
class Row:
    """Costs of a number of days."""

    days: int
    used: dict[str, float]
    """Seconds, seconds of CPU, and the peak MiB, by the titles in SHOWN."""
    state: float
    """MiB of the state."""


def main(folder: Path, days: Sequence[int], document: Path | None, keep: bool = False) -> int:
    """Measure, print the table, and write it into a section of `document`.

    The past is in `folder`; it is used again if an earlier run left it there, and removed at the
    end unless `keep`. Return 1 if the last row is more than GOAL times the first in CPU or
    memory. Raises HistoryError.
    """
    console = Console()
    rows = []
    past = folder / "past"
    fleet = Fleet(DEVICES, BEGIN)
    for count in sorted(set(days)):
        _check(past, count)
        with console.status("") as status:

            def show(done: int, count: int = count) -> None:
                status.update(f"{done} of {count} days of the past are written")

            make(fleet, count, past, show)
            rows.append(_row(count, past, folder / "measured", status.update))
        console.print(f"{count} days are measured")
    section = text(rows)
    console.print(section, markup=False, highlight=False, soft_wrap=True)
    if document is not None:
        results.write(document, NAME, section)
    if not keep:
        shutil.rmtree(past)
    return 0 if not missed(rows) else 1


def _check(past: Path, days: int) -> None:
    """Raise HistoryError if there are more days already: they are not taken back."""
    if (past / STATE).exists():
        with closing(Store(past / STATE)) as store:
            place = store.place()
        if place is not None and (place.next or 0) > days:
            raise HistoryError(
                f"{past} has {place.next} days, and {days} are to be measured: remove it"
            )


def _row(days: int, past: Path, out: Path, show: Callable[[str], None]) -> Row:
    """Measure so many days, in a copy."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        shutil.copytree(past, out)
        show("the tables are refreshed ...")
        refreshed = _child(out, days)
        show("reports ...")
        report = _report(out)
        _, week, _ = _report(out, "--since", "7d")
        used = dict(zip(SHOWN, (*refreshed, *report, week), strict=True))
        state = [file for file in (out / "state").rglob("*") if file.is_file()]
        return Row(days, used, sum(file.stat().st_size for file in state) / _MIB)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _report(out: Path, *options: str) -> tuple[float, float, float]:
    """Seconds that a report takes, in a process of its own, s of CPU and MiB of that at most."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as words:
        process = psutil.Popen(
            [
                sys.executable, "-m", "flatmq_tools.cli", "pipeline", "report",
                str(out / "report"), "--tables", str(out), *options,
            ],
            stdin=subprocess.DEVNULL, stdout=words, stderr=words,
        )  # fmt: skip
        memory, cpu = 0.0, 0.0
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                memory = max(memory, process.memory_info().rss / _MIB)
                times = process.cpu_times()
                cpu = times.user + times.system
            time.sleep(_SOON)
        seconds = time.monotonic() - begun
        if process.returncode:
            words.seek(0)
            raise HistoryError(f"the report failed: {words.read().decode()}")
    return seconds, cpu, memory


def _child(out: Path, days: int) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(out), str(days)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise HistoryError(f"a refresh failed: {done.stderr}")
    found: list[float] = json.loads(done.stdout)
    return found


def refresh(out: Path, days: int) -> tuple[float, float, float]:
    """Refresh the tables repeatedly, each time with a new minute of messages.

    Return the median seconds and CPU seconds, and the peak MiB.
    """
    fleet = Fleet(DEVICES, BEGIN)
    snapshots = Snapshots(out / STATE, out)
    seconds, cpu = [], []
    with closing(Store(out / STATE)) as store:
        state = State(store)
        place = store.place()
        assert place is not None
        for n in range(_REFRESHES + 1):
            batch = (place.batch or 0) + 1 + n
            packs = fleet.arrivals(days * MINUTES + n, 1)
            include(state, fleet, packs, Place(place.query, batch, batch + 1, None))
            used, begun = time.process_time(), time.monotonic()
            snapshots.refresh()
            if n:  # the first one prepares what the others use
                cpu.append(time.process_time() - used)
                seconds.append(time.monotonic() - begun)
    # ru_maxrss would be that of the parent, if it had more when it started this process.
    status = Path("/proc/self/status").read_text().split()
    most = int(status[status.index("VmHWM:") + 1]) / 1024
    return median(seconds), median(cpu), most


SHOWN = (
    "refresh, s", "refresh, s of CPU", "refresh, MiB", "report, s", "report, s of CPU",
    "report, MiB", "report of 7 days, s of CPU",
)  # fmt: skip


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    return {title: rows[-1].used[title] / rows[0].used[title] for title in SHOWN}


def missed(rows: Sequence[Row]) -> list[str]:
    """The times of CPU and memories of which the last row is more than GOAL times the first.

    Seconds of the clock depend on what else the machine does.
    """
    ratios = _ratios(rows).items()
    return [title for title, ratio in ratios if ratio > GOAL and not title.endswith(", s")]


def text(rows: Sequence[Row]) -> str:
    """The table, as Markdown."""
    lines = [
        [f"{row.days:,}", *(results.number(row.used[title]) for title in SHOWN),
         results.number(row.state)]
        for row in rows
    ]  # fmt: skip
    lines.append(["last / first", *(f"{ratio:.2f}" for ratio in _ratios(rows).values()), ""])
    late = missed(rows)
    verdict = f"MISSED: {', '.join(late)}." if late else "Met."
    return (
        f"{DEVICES} boards with a message a minute. Goal: CPU and memory of the last row are "
        f"at most {GOAL} times those of the first. {verdict}\n\n"
        f"{results.table(['days', *SHOWN, 'MiB of the state'], lines)}"
    )


if __name__ == "__main__":
    print(json.dumps(refresh(Path(sys.argv[1]), int(sys.argv[2]))))
