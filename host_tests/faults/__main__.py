"""`python -m faults`: the fault table, printed and written to the results."""

import argparse
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flatmq_rigs import results

from .bench import Bench, Row, cases

HEAD = ("scenario", "broker", "interpreter", "the application saw", "after ms", "longest ms", "")
SHORT = ("scenario", "runs", "the application saw", "after ms", "longest ms", "")


def cells(row: Row) -> list[str]:
    return [
        row.case.scenario.title,
        row.case.broker,
        row.case.python,
        row.saw,
        f"{row.after:,}",
        f"{row.longest:.1f}",
        "ok" if row.ok else "FAILED: " + row.problems[0],
    ]


def summary(table: list[list[str]]) -> list[list[str]]:
    """Return a row for each scenario, of `cells` in order: the longest times of its runs."""
    found: dict[str, list[list[str]]] = {}
    for title, _broker, _python, *rest in table:
        found.setdefault(title, []).append(rest)
    short = []
    for title, each in found.items():
        # A port differs in each run.
        runs = [[re.sub(r"(127\.0\.0\.1):\d+", r"\1", run[0]), *run[1:]] for run in each]
        saw, after, longest, ends = map(dict.fromkeys, zip(*runs, strict=True))
        slowest = max(after, key=lambda cell: int(cell.replace(",", "")))
        bad = [end for end in ends if end != "ok"]
        short.append([title, str(len(runs)), " / ".join(saw), slowest,
                      max(longest, key=float), bad[0] if bad else "ok"])  # fmt: skip
    return short


def section(table: list[list[str]]) -> str:
    """The table as Markdown, from `cells`."""
    bad = sum(row[-1] != "ok" for row in table)
    return f"""\
## Faults

`python -m flatmq_rigs faults`: {len(table)} runs, {bad} not ok. Each scenario runs on CPython and
MicroPython, against two brokers behind a proxy. A run is ok if nothing accepted at QoS 1 or 2 was
lost, nothing at QoS 2 came twice, order was kept, the client came back and moves messages both
ways, no `poll(20)` waited longer, and heap and open files are as before. The times are the longest
of a scenario's runs.

{results.table(SHORT, summary(table))}
"""


def main() -> int:
    """Run them all; 1 when one is not ok."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="as the tests run them")
    parser.add_argument("--only", metavar="TEXT", help="scenarios with this in their name")
    parser.add_argument("--results", type=Path, help="the file that the table goes to")
    options = parser.parse_args()
    console = Console()
    wanted = [case for case in cases() if not options.only or options.only in str(case)]
    found: dict[object, Row] = {}
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bench(is_long=not options.short) as bench, Progress(*columns, console=console) as shown:
        task = shown.add_task("faults", total=len(wanted))
        for row in bench.run_all(wanted):
            found[row.case] = row
            shown.advance(task)
            if not row.ok:
                shown.console.print(f"{row.case}: {row.problems}\n{row.told}", markup=False)
    rows = sorted(found.values(), key=lambda row: ORDER[row.case])
    table = Table(*HEAD)
    lines = [cells(row) for row in rows]
    for each in lines:
        table.add_row(*each)
    console.print(table)
    bad = sum(not row.ok for row in rows)
    console.print(f"{len(rows)} rows, {bad} not ok")
    if options.results:
        results.write(options.results, "faults", section(lines))
    return 1 if bad or not rows else 0


ORDER = {case: i for i, case in enumerate(cases(waiting_first=False))}

if __name__ == "__main__":
    sys.exit(main())
