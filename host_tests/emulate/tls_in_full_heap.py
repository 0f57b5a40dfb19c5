"""`python -m emulate.tls_in_full_heap`: TLS on an emulated Pico W whose heap is full.

The connection is cut again and again, with FLATMQ_FIRMWARE.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.progress import track

from flatmq_rigs import emulated, results
from flatmq_rigs.proxy import Proxy
from observer import Observer
from tls.secure_broker import SecureBroker

SECTION = "tls-full-heap"
SKETCH = Path(__file__).with_name("full_heap")
LIMIT = 240  # s of the board's clock for a row


def _row(
    filled: str = "", left: int = 0, reserve: int | None = None, churns: bool = False
) -> dict[str, Any]:
    return {"filled": filled, "left": left, "reserve": reserve, "churns": churns}


# When the application fills the heap, and with how many bytes left.
ROWS = {
    "not filled": _row(),
    "filled while online, 16 KB left": _row("online", 16_000),
    "filled while online, 4 KB left": _row("online", 4_000),
    "filled before the first connection, 16 KB left": _row("made", 16_000),
    "filled while online, 16 KB left, and it claims and frees all the time, `reserve=8192`": _row(
        "online", 16_000, 8192, True
    ),
}


def run(row: dict[str, Any], rounds: int, firmware: str, secure: SecureBroker) -> dict[str, Any]:
    """Return what the sketch says of a row; an empty dictionary if it says nothing."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()), "sketch")
        shutil.copytree(SKETCH, folder)
        (folder / "row.py").write_text(f"ROW = { ({**row, 'rounds': rounds})!r}\n", "utf-8")
        proxy = stack.enter_context(Proxy("127.0.0.1", secure.ports["named"]))
        plain = secure.ports["plain"]
        desk = stack.enter_context(Observer("127.0.0.1", plain, "cut"))
        words = [
            *("--broker", f"127.0.0.1:{proxy.port}", "--tls", "--pin", secure.pins["named"]),
            *("--for", f"{LIMIT}s", "--set", "broker.host=broker.example"),
            *("--set", f"broker.port={proxy.port}"),
            *("--set", f"broker.tls.ca={secure.path('ca.pem')}"),
        ]
        log = stack.enter_context(tempfile.TemporaryFile("w+"))
        board = subprocess.Popen(
            [sys.executable, "-m", "flatmq_tools.cli", "emulate", "pico_w", str(folder),
             "--firmware", firmware, *words],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        stack.callback(board.kill)
        cuts = 0
        while board.poll() is None:
            if cuts < (cuts := len(desk.messages)):
                proxy.strike("reset")
            time.sleep(0.02)
        log.seek(0)
        printed = log.read()
    found = re.findall(r"^.*?result (\{.*\})", printed, re.MULTILINE)
    if not found:
        print(printed)
    return json.loads(found[-1]) if found else {}


def main(arguments: list[str] | None = None) -> int:
    """Run every row; 1 if a connection did not come back."""
    parser = argparse.ArgumentParser(prog="tls-full-heap", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="Reconnects in each row.")
    parser.add_argument("--only", default="", help="Part of the names of the rows to run.")
    parser.add_argument("--results", type=Path, help="Markdown file with the section to rewrite.")
    given = parser.parse_args(arguments)
    firmware = emulated.needed("pico_w")
    secure = SecureBroker()
    try:
        seen = {
            name: run(row, given.rounds, firmware, secure)
            for name, row in track([*ROWS.items()], "full heaps") if given.only in name
        }  # fmt: skip
    finally:
        secure.stop()
    rows = [
        (
            name, f"{one.get('good', 0)} of {given.rounds}",
            *(results.number(one.get(key)) for key in ("free", "after")),
            results.number(round(one["most"] / 1000) if "most" in one else None),
        )
        for name, one in seen.items()
    ]  # fmt: skip
    good = sum(one.get("good", 0) for one in seen.values())
    head = ("the heap", "came back", "bytes free before", "after", "longest poll, ms")
    text = (
        f"## TLS in a full heap\n\n`python -m flatmq_rigs tls-full-heap`: MicroPython "
        f"{Path(firmware).stem.rpartition('-v')[2]} on an emulated Pico W, TLS 1.2 with P-256 by "
        f"an authority. The connection is cut {given.rounds * len(seen)} times while it is "
        f"online, and came back {good} times.\n\n{results.table(head, rows)}\n"
    )
    print(text, *(f"{name}: {one.get('error')}\n" for name, one in seen.items()))
    if given.results:
        results.write(given.results, SECTION, text)
    return int(good < given.rounds * len(seen))


if __name__ == "__main__":
    sys.exit(main())
