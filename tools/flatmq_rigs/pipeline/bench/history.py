"""The cost of an hour of messages, a refresh and a report after 1, 30 and 365 days.

The past is written directly (see `past`). Then one more hour comes, which is made into tables as a
run does it, but without Spark, whose cost does not depend on the past. What is measured runs in
processes of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
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

from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.jobs.parsing import Reads
from flatmq_tools.pipeline.processes import CommandError
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.batch import make as tables_of
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.state.taking import SCHEMAS
from flatmq_tools.pipeline.state.values import DAY
from flatmq_tools.pipeline.tables import BY_DAY

from ... import results
from .past import MINUTES, QUERY, STATE, Fleet, include, make, write

NAME = "history"
DEVICES = 500
BEGIN = 1_761_955_200_000_000
"""The first day is 1 November 2025."""
GOAL = 1.5
"""The last row is at most so many times the first."""
_HOUR = 60  # minutes
_REFRESHES = 9
_SOON = 0.01  # s between two looks at a report
_MIB = 1 << 20


@dataclass
class Row:
    """Costs of a number of days."""

    days: int
    messages: int
    used: dict[str, float]
    """Seconds, seconds of CPU, and the peak MiB, by the titles in SHOWN."""
    files: int
    mebibytes: float
    state: float
    """MiB of the state."""


def main(
    folder: Path, days: Sequence[int], document: Path | None, keep: bool = False,
    console: Console | None = None,
) -> int:  # fmt: skip
    """Measure, print the table, and write it into a section of `document`.

    The past is in `folder`; it is used again if an earlier run left it there, and removed at the
    end unless `keep`. Return 1 if the last row is more than GOAL times the first in CPU or
    memory. Raises CommandError.
    """
    console = console or Console()
    rows = []
    past = folder / "past"
    fleet = Fleet(DEVICES, BEGIN)
    for count in sorted(set(days)):
        _check(past, count)
        with console.status("") as status:

            def show(done: int, count: int = count) -> None:
                status.update(f"{done} of {count} days of the past are written")

            make(fleet, count, past, show)
            rows.append(_row(fleet, count, past, folder / "measured", status.update))
        console.print(f"{count} days are measured")
    section = text(rows)
    console.print(section, markup=False, highlight=False, soft_wrap=True)
    if document is not None:
        results.write(document, NAME, section)
    if not keep:
        shutil.rmtree(past)
    return 0 if not missed(rows) else 1


def _check(past: Path, days: int) -> None:
    """Raise CommandError if there are more days already: they are not taken back."""
    if (past / STATE).exists():
        with closing(Store(past / STATE)) as store:
            place = store.place()
        there = 0 if place is None or place.batch is None else place.batch + 1
        if there > days:
            raise CommandError(
                f"{past} has {there} days, and {days} are to be measured: remove it"
            )


def _row(
    fleet: Fleet, days: int, past: Path, out: Path, show: Callable[[str], None]
) -> Row:  # fmt: skip
    """Measure so many days, in a copy of which the files of raw are links."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        show("the past is copied ...")
        shutil.copytree(past, out, ignore=shutil.ignore_patterns("raw"))
        shutil.copytree(past / "raw", out / "raw", copy_function=os.link)
        before = _messages(out)
        show("an hour of messages comes ...")
        hour = _child("hour", out, days)
        messages = _messages(out)
        came = len(fleet.arrivals(days * MINUTES, _HOUR).row)
        if messages != before + came:
            raise CommandError(
                f"{came:,} messages came, and the state knows {messages - before:,}"
            )
        show("the tables are refreshed ...")
        refresh = _child("refresh", out, days)
        show("reports ...")
        report = _report(out)
        _, week, _ = _report(out, "--since", "7d")
        files = [file for file in out.rglob("*") if file.is_file()]
        state = [file for file in (out / "state").rglob("*") if file.is_file()]
        used = dict(zip(SHOWN, (*refresh, *report, week, *hour), strict=True))
        return Row(days, messages, used, len(files), _size(files), _size(state))
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _size(files: Sequence[Path]) -> float:
    return sum(file.stat().st_size for file in files) / _MIB


def _messages(out: Path) -> int:
    store = Store.of_run(out / STATE)
    if store is None:
        return 0
    with store, store.named():
        (count,) = store.db.execute(
            "SELECT coalesce(sum(messages), 0) FROM steps WHERE width = ?", (DAY,)
        ).fetchone()
    return int(count)


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
            raise CommandError(f"the report failed: {words.read().decode()}")
    return seconds, cpu, memory


def _child(what: str, out: Path, days: int) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-m", __name__, what, str(out), str(days)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CommandError(f"{what} failed: {done.stderr}")
    found: list[float] = json.loads(done.stdout)
    return found


def hour(out: Path, days: int) -> tuple[float, float, float]:
    """Make tables of an hour of messages; return the seconds, s of CPU and the peak MiB."""
    fleet = Fleet(DEVICES, BEGIN)
    messages = fleet.messages(fleet.arrivals(days * MINUTES, _HOUR))
    write(messages, out, days * MINUTES)
    used, begun = time.process_time(), time.monotonic()
    with Store(out / STATE) as store:
        tables = {name: Delta(out / name, by_day=BY_DAY[name]) for name in SCHEMAS}
        tables_of(State(store), tables, messages, Reads(), Place(QUERY, days, None))
    return time.monotonic() - begun, time.process_time() - used, _peak()


def refresh(out: Path, days: int) -> tuple[float, float, float]:
    """Refresh the tables repeatedly, each time with a new minute of messages.

    Return the median seconds and CPU seconds, and the peak MiB.
    """
    fleet = Fleet(DEVICES, BEGIN)
    snapshots = Snapshots(out / STATE, str(out))
    seconds, cpu = [], []
    with Store(out / STATE) as store:
        state = State(store)
        for n in range(_REFRESHES + 1):
            packs = fleet.arrivals(days * MINUTES + _HOUR + n, 1)
            include(state, packs, Place(QUERY, days + 1 + n, None))
            used, begun = time.process_time(), time.monotonic()
            snapshots.refresh()
            if n:  # the first one writes what the hour changed
                cpu.append(time.process_time() - used)
                seconds.append(time.monotonic() - begun)
    return median(seconds), median(cpu), _peak()


def _peak() -> float:
    """Return the peak MiB. ru_maxrss would be that of the parent, if it had more at the start."""
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) / 1024


SHOWN = (
    "refresh, s", "refresh, s of CPU", "refresh, MiB", "report, s", "report, s of CPU",
    "report, MiB", "report of 7 days, s of CPU", "an hour, s", "an hour, s of CPU", "an hour, MiB",
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
    head = ["days", "messages", *SHOWN, "files", "MiB", "of these the state"]
    lines = [
        [
            f"{row.days:,}", f"{row.messages:,}",
            *(results.number(row.used[title]) for title in SHOWN),
            f"{row.files:,}", results.number(row.mebibytes), results.number(row.state),
        ]
        for row in rows
    ]  # fmt: skip
    lines.append(
        ["last / first", "", *(f"{ratio:.2f}" for ratio in _ratios(rows).values()), "", "", ""]
    )
    late = missed(rows)
    verdict = f"MISSED: {', '.join(late)}." if late else "Met."
    return (
        "## Days behind a run\n\n`python -m flatmq_rigs history`: "
        f"{DEVICES} boards with a message a minute. Goal: CPU and memory of the last row are "
        f"at most {GOAL} times those of the first. {verdict}\n\n{results.table(head, lines)}"
    )


if __name__ == "__main__":
    measured = {"hour": hour, "refresh": refresh}[sys.argv[1]]
    print(json.dumps(measured(Path(sys.argv[2]), int(sys.argv[3]))))
