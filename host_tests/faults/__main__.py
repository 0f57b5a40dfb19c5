"""`python -m faults`: the fault table, printed and written to the results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flatmq_rigs import results

from .bench import Bench, Row, cases
from .catalogue import LARGER, MORE_5, OVER, SMALL

HEAD = ("scenario", "broker", "interpreter", "the application saw", "after ms", "longest ms", "")


def cells(row: Row) -> list[str]:
    """A row of the table."""
    return [
        row.case.scenario.title,
        row.case.broker,
        row.case.python,
        row.saw,
        f"{row.after:,}",
        f"{row.longest:.1f}",
        "ok" if row.ok else "FAILED: " + row.problems[0],
    ]


def section(rows: list[Row], is_long: bool) -> str:
    """The table as Markdown."""
    bad = sum(not row.ok for row in rows)
    minute = "a minute" if is_long else "a minute of a clock that runs faster"
    some = "every 13th over TLS" if is_long else "every 61st over TLS, every 7th over WebSocket"
    tls, websocket = OVER.values()
    return f"""\
## Faults

`python -m flatmq_rigs faults`: {len(rows)} rows, {bad} not ok. "connection refused" lasted
{minute}.

The same scenario runs on CPython and on MicroPython (heap {SMALL}, {LARGER} where messages have
8 KB, {tls} over TLS, {websocket} over WebSocket, {MORE_5} KB more at MQTT 5; compiled, 64-bit),
against mosquitto and against a broker made for it, each behind a proxy. Over TLS and WebSocket
there are rows for the scenarios that need not look at packets on the way, and at MQTT 5 for those
that do not send bytes of 3.1.1. "After every byte" means {some}.
A row is ok if, beside what the scenario itself asks for: nothing accepted at QoS 1 or 2 was lost,
nothing at QoS 2 came twice (but for a session that the broker forgot), the first deliveries of a
topic were in order, no `poll(20)` waited for more than 20 ms, the client was online again with
nothing pending and moved messages of every QoS both ways, and the same bytes of heap were in use
and the same number of files open as before. "Longest" is the wall time of the longest `poll(20)`
of the run, name lookups apart, on a machine that ran several scenarios at a time.

{results.table(HEAD, map(cells, rows))}
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
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    bad = sum(not row.ok for row in rows)
    console.print(f"{len(rows)} rows, {bad} not ok")
    if options.results:
        results.write(options.results, "faults", section(rows, not options.short))
    return 1 if bad or not rows else 0


ORDER = {case: i for i, case in enumerate(cases(waiting_first=False))}

if __name__ == "__main__":
    sys.exit(main())
