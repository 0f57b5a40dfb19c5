"""The client with asyncio, on both interpreters, against mosquitto behind a proxy."""

from __future__ import annotations

import ast
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import SharedBrokers, interpreter_command, library
from device import on_device
from flatmq_rigs.proxy import Proxy
from flatmq_tools import interpreter
from scenario_child import converse

HERE = Path(__file__).parent
HEAP = "256k"  # of MicroPython, for the client, the scenarios and their compiler
DEADLINE = 90  # seconds until a scenario is ended from outside; it gives up by itself before
_run_number = itertools.count()


def _functions(module: str) -> list[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    found = [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return [name for name in found if name[0] != "_"]


@pytest.fixture
def proxy(shared_brokers: SharedBrokers) -> Iterator[Proxy]:
    broker = shared_brokers.get("mosquitto", "shared")
    with Proxy(broker.host, broker.port) as made:
        yield made


def _run(name: str, scenario: str, proxy: Proxy, version: int = 4) -> list[list[str]]:
    """Run a scenario to its end; returns the words of the lines that it reported."""

    def carry_out(words: list[str]) -> str:
        match words:
            case ["cut"]:
                proxy.strike("cut")
            case ["refuse"]:
                proxy.refuse()
            case ["accept"]:
                proxy.refuse(False)
            case _:
                raise AssertionError(f"the scenario asks for something unknown: {words}")
        return "done"

    printed: list[list[str]] = []
    converse(
        [
            *interpreter_command(name, HEAP),
            str(HERE / "run_aio.py"),
            scenario,
            f"host={proxy.host}",
            f"port={proxy.port}",
            f"token=aio{next(_run_number)}",
            f"version={version}",
        ],
        interpreter.environment(library(name), HERE),
        DEADLINE,
        carry_out,
        printed.append,
    )
    return printed


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("python", ["cpython", "micropython"])
@pytest.mark.parametrize(
    "scenario", [name for name in _functions("aio_scenarios") if name != "idle_turns"]
)
def test_scenario(scenario: str, python: str, version: int, proxy: Proxy) -> None:
    _run(python, scenario, proxy, version)


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_an_idle_client_sleeps(python: str, proxy: Proxy) -> None:
    printed = _run(python, "idle_turns", proxy)
    (turns,) = [int(words[1]) for words in printed if words[0] == "@turns"]
    # In two seconds: 20 ms each, and never more. On a busy machine there are fewer.
    assert 1 <= turns <= 110


@pytest.mark.parametrize(
    "operation",
    [name for name in _functions("aio_proof") if name not in ("main", "publish", "receive")],
)
def test_it_allocates_nothing(operation: str) -> None:
    done = subprocess.run(
        [*interpreter_command("micropython", HEAP), str(HERE / "aio_proof.py"), operation],
        env=interpreter.environment(on_device.made(), HERE),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    # Bytes requested, bytes kept, and whether anything failed with the heap locked.
    assert done.stdout.split() == ["SEEN", "0.0", "0.0", "0"], done.stdout + done.stderr
