"""Run a scenario over WebSocket in an interpreter of its own."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from conftest import HERE
from scenario_child import play

HEAP = "320k"  # of MicroPython, for the client, the scenario and its compiler
PYTHONS = ("cpython", "micropython")
_run_number = itertools.count()


def run(
    python: str, scenario: str, port: int, mask: str = "random", ca: Path | None = None
) -> list[str]:
    """Run a scenario, "module.function", to its end, and return the lines that begin with @.

    `mask` is "random", or "zero" as over TLS; `ca` is the authority of a broker with TLS.
    """
    heard: list[str] = []
    play(
        python,
        HERE / "run_linked.py",
        *scenario.split("."),
        heap=HEAP,
        folders=[HERE / "scenarios", Path(__file__).parent],
        hear=lambda words: heard.append(" ".join(words)),
        host="127.0.0.1",
        port=port,
        token=f"ws{next(_run_number)}",
        mask=mask,
        tls=json.dumps({"ca": str(ca)} if ca else None),
    )
    return heard
