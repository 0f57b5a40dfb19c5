"""The client with asyncio, on both interpreters, against mosquitto behind a proxy."""

import ast
import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest

import sizes
from conftest import PYTHONS, library
from device import on_device
from flatmq import aio
from flatmq_rigs.proxy import Proxy
from flatmq_tools.broker import Broker
from scenario_child import play
from side_by_side import side_by_side

HERE = Path(__file__).parent
HEAP = "256k"  # of MicroPython, for the client, the scenarios and their compiler
DEADLINE = 90  # seconds until an interpreter is ended from outside
_run_number = itertools.count()


def _scenarios() -> list[str]:
    tree = ast.parse((HERE / "aio_scenarios.py").read_text())
    found = [node.name for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    return [name for name in found if name[0] != "_"]


class Case(NamedTuple):
    """A scenario on an interpreter, with clients of a version."""

    scenario: str
    python: str
    version: int

    def __str__(self) -> str:
        return "-".join(map(str, self))


def _run(case: Case, broker: Broker) -> list[list[str]]:
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
    with Proxy(broker.host, broker.port) as proxy:
        play(
            case.python,
            HERE / "aio_env.py",
            case.scenario,
            heap=HEAP,
            deadline=DEADLINE,
            carry_out=carry_out,
            hear=printed.append,
            host=proxy.host,
            port=proxy.port,
            token=f"aio{next(_run_number)}",
            version=case.version,
        )
    return printed


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, near: Broker
) -> Iterator[dict[Case, Future[list[list[str]]]]]:
    """The report of each scenario that is asked for, now or later."""
    library("micropython")  # compiled before the threads need it
    with side_by_side(request, test_scenario, lambda case: _run(case, near)) as futures:
        yield futures


CASES = itertools.starmap(Case, itertools.product(_scenarios(), PYTHONS, (4, 5)))


@pytest.mark.parametrize("case", sizes.one_each(CASES, lambda case: case[:2]), ids=str)
def test_scenario(case: Case, runs: dict[Case, Future[list[list[str]]]]) -> None:
    printed = runs[case].result()
    if case.scenario == "idle_turns":
        (turns,) = [int(words[1]) for words in printed if words[0] == "@turns"]
        # In two seconds: 20 ms each, and never more. On a busy machine there are fewer.
        assert 1 <= turns <= 110


def test_the_rest_is_that_of_its_core() -> None:
    client = aio.Client(b"rest", "localhost")
    assert client.stats is client.core.stats
    assert (client.state, client.error) == ("offline", None)
    with pytest.raises(AttributeError, match="no_such_thing"):
        print(client.no_such_thing)


def test_a_queue_holds_messages_of_rx_size() -> None:
    client = aio.Client(b"rest", "localhost", rx_size=300)
    assert client.rx_size == 300
    queue = client.subscribe(b"a", queue=3)
    assert [len(buf) for buf in queue._ring[::4]] == [300] * 3


def _operations() -> list[str]:
    """The keys of OPERATIONS in aio_proof.py, which runs on MicroPython alone."""
    (table,) = [
        node.value
        for node in ast.parse((HERE / "aio_proof.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    ]
    return [key.value for key in table.keys if isinstance(key, ast.Constant)]


def _proof(operation: str) -> list[str]:
    return on_device.run(HERE / "aio_proof.py", operation, heap=HEAP, timeout=DEADLINE)


@pytest.fixture(scope="module")
def proofs(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[list[str]]]]:
    on_device.made()  # before the threads need it
    with side_by_side(request, test_it_allocates_nothing, _proof) as futures:
        yield futures


@pytest.mark.parametrize("case", _operations())
def test_it_allocates_nothing(case: str, proofs: dict[str, Future[list[str]]]) -> None:
    # Bytes requested, bytes kept, and whether anything failed with the heap locked.
    assert proofs[case].result() == ["0.0", "0.0", "0"]
