"""The cost of a refresh, a report and a restart after 1, 30 and 365 days.

The past is written directly (see `past`). The jobs of `flatmq pipeline run` then make tables of
one more hour, as after a restart. What is measured runs in processes of its own.
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
from deltalake import DeltaTable
from rich.console import Console

from flatmq_tools.pipeline.processes import Command, CommandError
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.snapshots import Snapshots
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.state.values import DAY
from flatmq_tools.pipeline.tables import SNAPSHOTS

from ... import results
from .past import MINUTES, STATE, Fleet, include, make, write

NAME = "history"
DEVICES = 500
BEGIN = 1_761_955_200_000_000
"""The first day is 1 November 2025."""
GOAL = 1.2
"""The last row is at most so many times the first."""
_HOUR = 60  # minutes, for the real jobs
_REFRESHES = 9
_SOON = 0.01  # s between two looks at a report
_PATIENCE = 900.0  # s until a run has started, or ended
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
        show("a first run makes its checkpoints ...")
        _begin(fleet, days, past, out)
        show("a run starts again and makes tables of an hour ...")
        restart, messages = _restart(fleet, days, out)
        show("the tables are refreshed ...")
        refresh = _child("refresh", out, days)
        show("reports ...")
        report = _report(out)
        _, week, _ = _report(out, "--since", "7d")
        files = [file for file in out.rglob("*") if file.is_file()]
        state = [file for file in (out / "state").rglob("*") if file.is_file()]
        used = dict(zip(SHOWN, (*refresh, *report, week, *restart), strict=True))
        return Row(days, messages, used, len(files), _size(files), _size(state))
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _size(files: Sequence[Path]) -> float:
    return sum(file.stat().st_size for file in files) / _MIB


def _begin(fleet: Fleet, days: int, past: Path, out: Path) -> None:
    """Have a real run make its checkpoints of a minute of messages.

    Then put the past in front of it, as if the run had done that, a batch for each day.
    """
    landed = _land(fleet, days * MINUTES, 1, out)
    with _Run(out) as run:
        run.started()
        run.finished(lambda: _messages(out) >= landed)
    for table in ("raw", "measurements", "dead_letters"):
        shutil.rmtree(out / table)
    shutil.copytree(past / "raw", out / "raw", copy_function=os.link)
    _land(fleet, days * MINUTES, 1, out)
    _renumber(out / "checkpoints" / "measurements", days, out / "raw")
    with closing(Store(out / STATE)) as store:
        ran = store.place()
    if ran is None:
        raise CommandError("the first run has made no state")
    shutil.rmtree(out / "state")
    shutil.copytree(past / "state", out / "state")
    with closing(Store(out / STATE)) as store:
        include(State(store), fleet.arrivals(days * MINUTES, 1), Place(ran.query, days, None))
    for name in SNAPSHOTS:
        shutil.rmtree(out / name)
        shutil.copytree(past / name, out / name)


def _renumber(checkpoint: Path, batch: int, raw: Path) -> None:
    """Make the last batch of a query the one of this number, up to the end of the table raw."""
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    kept = {name: (checkpoint / name / str(last)).read_text() for name in ("offsets", "commits")}
    *head, line = kept["offsets"].splitlines()
    table = DeltaTable(str(raw))
    offset = {
        **json.loads(line), "table": str(table.metadata().id), "version": table.version() + 1,
        "file": 0, "group": 0, "whole": False,
    }  # fmt: skip
    for folder in kept:
        for file in (checkpoint / folder).iterdir():
            file.unlink()
    # Spark reads the one before it, too.
    for number in (batch - 1, batch):
        text = "\n".join([*head, json.dumps(offset)])
        (checkpoint / "offsets" / str(number)).write_text(text)
        (checkpoint / "commits" / str(number)).write_text(kept["commits"])


def _land(fleet: Fleet, first: int, minutes: int, out: Path) -> int:
    """Land messages as an ingest does; return how many."""
    messages = fleet.messages(fleet.arrivals(first, minutes))
    write(messages, out, first)
    return len(messages)


class _Run(Command):
    """`flatmq pipeline run` of what is in OUT/raw, as a process of its own."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._begun = time.monotonic()
        jobs = [word for job in ("measurements", "health") for word in ("--job", job)]
        super().__init__(out / "run.txt", "run", out, *jobs)
        self.memory = 0.0
        """MiB of it and of the processes that it has started, at most."""

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def started(self) -> tuple[float, float]:
        """Wait until its queries run; return after how many seconds, and s of CPU."""
        self.until(lambda: self._looked("started after" in self.words()), _PATIENCE)
        times = [each.cpu_times() for each in self._all()]
        return time.monotonic() - self._begun, sum(each.user + each.system for each in times)

    def finished(self, done: Callable[[], bool]) -> None:
        """Wait until it has done something, and end it as a service does."""
        self.until(lambda: self._looked(done()), _PATIENCE)
        self.end(_PATIENCE)

    def _all(self) -> list[psutil.Process]:
        me = psutil.Process(self.pid)
        return [me, *me.children(recursive=True)]

    def _looked(self, done: bool) -> bool:
        used = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self._all():
                with contextlib.suppress(psutil.NoSuchProcess):
                    used += process.memory_info().rss
        self.memory = max(self.memory, used / _MIB)
        return done


def _restart(fleet: Fleet, days: int, out: Path) -> tuple[tuple[float, float, float], int]:
    """Start a run again, which makes tables of an hour of messages.

    Return the seconds and s of CPU until its queries run and MiB, and the messages that its state
    then counts. Raises CommandError if these are not as many as came.
    """
    hour = _land(fleet, days * MINUTES + 1, _HOUR, out)
    before = _messages(out)
    with _Run(out) as run:
        seconds = run.started()
        run.finished(lambda: _messages(out) >= before + hour)
    after = _messages(out)
    if after != before + hour:
        raise CommandError(
            f"{hour:,} messages came, and the state knows of {after - before:,} more"
        )
    return (*seconds, run.memory), after


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


def refresh(out: Path, days: int) -> tuple[float, float, float]:
    """Refresh the tables repeatedly, each time with a new minute of messages.

    Return the median seconds and CPU seconds, and the peak MiB.
    """
    fleet = Fleet(DEVICES, BEGIN)
    snapshots = Snapshots(out / STATE, str(out))
    seconds, cpu = [], []
    with closing(Store(out / STATE)) as store:
        state = State(store)
        place = store.place()
        assert place is not None
        for n in range(_REFRESHES + 1):
            batch = (place.batch or 0) + 1 + n
            packs = fleet.arrivals(days * MINUTES + 1 + _HOUR + n, 1)
            include(state, packs, Place(place.query, batch, None))
            used, begun = time.process_time(), time.monotonic()
            snapshots.refresh()
            if n:  # the first one writes what the run did not
                cpu.append(time.process_time() - used)
                seconds.append(time.monotonic() - begun)
    # ru_maxrss would be that of the parent, if it had more when it started this process.
    status = Path("/proc/self/status").read_text().split()
    most = int(status[status.index("VmHWM:") + 1]) / 1024
    return median(seconds), median(cpu), most


SHOWN = (
    "refresh, s", "refresh, s of CPU", "refresh, MiB", "report, s", "report, s of CPU",
    "report, MiB", "report of 7 days, s of CPU", "restart, s", "restart, s of CPU", "restart, MiB",
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
    print(json.dumps(refresh(Path(sys.argv[2]), int(sys.argv[3]))))
