"""Run a scenario over WebSocket in an interpreter of its own."""

from __future__ import annotations

import itertools
from pathlib import Path

import conftest
from conftest import interpreter_command, library
from flatmq_tools import interpreter
from scenario_child import converse

HERE = Path(__file__).parent
HEAP = "320k"  # of MicroPython, for the client, the scenario and its compiler
DEADLINE = 90  # seconds until a scenario is ended from outside; it gives up by itself before
PYTHONS = ["cpython", "micropython"]
_run_number = itertools.count()


def run(
    python: str, scenario: str, port: int, mask: str = "random", ca: Path | None = None
) -> list[str]:
    """Run a scenario, "module.function", to its end, and return the lines that begin with @.
    `mask` is "random", or "zero" as over TLS; `ca` is the authority of a broker with TLS."""
    module, function = scenario.split(".")
    heard: list[str] = []
    arguments = ["host=127.0.0.1", f"port={port}", f"token=ws{next(_run_number)}", f"mask={mask}"]
    arguments += [f"ca={ca}"] if ca else []
    script = str(HERE / "run_over_websocket.py")
    tests = Path(conftest.__file__).parent
    converse(
        [*interpreter_command(python, HEAP), script, module, function, *arguments],
        interpreter.environment(library(python), tests, tests / "scenarios", HERE),
        DEADLINE,
        lambda words: None,
        lambda words: heard.append(" ".join(words)),
    )
    return heard
