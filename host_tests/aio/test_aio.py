"""The client with asyncio, on both interpreters, against mosquitto behind a proxy."""

from __future__ import annotations

import ast
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import sizes
from conftest import SharedBrokers, interpreter_command
from device import on_device
from flatmq import aio
from flatmq_rigs.proxy import Proxy
from flatmq_tools import interpreter
from scenario_child import play

HERE = Path(__file__).parent
HEAP = "256k"  # of MicroPython, for the client, the scenarios and their compiler
DEADLINE = 90  # seconds until an interpreter is ended from outside
PYTHONS = ("cpython", "micropython")
_run_number = itertools.count()


def _scenarios() -> list[str]:
    tree = ast.parse((HERE / "aio_scenarios.py").read_text())
    found = [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return [name for name in found if name[0] != "_"]


@pytest.fixture
def proxy(shared_brokers: SharedBrokers) -> Iterator[Proxy]:
    broker = shared_brokers.get("mosquitto", "shared")
    with Proxy(broker.host, broker.port) as made:
        yield made


def _run(python: str, scenario: str, proxy: Proxy, version: int = 4) -> list[list[str]]:
    """Run a scenario to its end; returns the words of the lines that it reported."""

    def carry_out(words: list[str]) -> str:
        match words:
            case ["cut"]:
                proxy.strike("cut")
            case ["refuse" | "accept" as what]:
                proxy.refuse(what == "refuse")
            case _:
                raise AssertionError(f"the scenario asks for something unknown: {words}")
        return "done"

    printed: list[list[str]] = []
    play(
        python,
        HERE / "aio_env.py",
        scenario,
        heap=HEAP,
        deadline=DEADLINE,
        carry_out=carry_out,
        hear=printed.append,
        host=proxy.host,
        port=proxy.port,
        token=f"aio{next(_run_number)}",
        version=version,
    )
    return printed


@pytest.mark.parametrize(
    ("scenario", "python", "version"),
    sizes.one_each(
        itertools.product(_scenarios(), PYTHONS, (4, 5)),
        lambda case: case[:2],
    ),
)
def test_scenario(scenario: str, python: str, version: int, proxy: Proxy) -> None:
    printed = _run(python, scenario, proxy, version)
    if scenario == "idle_turns":
        (turns,) = [int(words[1]) for words in printed if words[0] == "@turns"]
        # In two seconds: 20 ms each, and never more. On a busy machine there are fewer.
        assert 1 <= turns <= 110


def test_the_rest_is_that_of_its_core() -> None:
    client = aio.Client(b"rest", "localhost")
    assert client.stats is client.core.stats
    assert (client.state, client.error) == ("offline", None)
    with pytest.raises(AttributeError, match="no_such_thing"):
        print(client.no_such_thing)


def _operations() -> list[str]:
    """The keys of OPERATIONS in aio_proof.py, which runs on MicroPython alone."""
    (table,) = [
        node.value
        for node in ast.parse((HERE / "aio_proof.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    ]
    return [key.value for key in table.keys if isinstance(key, ast.Constant)]


@pytest.mark.parametrize("operation", _operations())
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
