"""Scenarios over WebSocket against mosquitto, on both interpreters, also through a bad network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from listener import mosquitto_with_websockets

import conftest
from conftest import interpreter_command, library
from flatmq_tools import interpreter
from flatmq_tools.broker import Broker
from flatmq_tools.proxy import Proxy, Rules, Way
from scenario_child import converse

HERE = Path(__file__).parent
HEAP = "160k"  # of MicroPython, for the client, the scenario and its compiler
DEADLINE = 90  # seconds until a scenario is ended from outside; it gives up by itself before
SCENARIOS = [
    "publish_subscribe.each_qos_to_each",
    "publish_subscribe.empty_and_large_payloads",
    "publish_subscribe.burst_in_order",
    "large.from_a_buffer",
    "large.from_a_file",
    "sessions.messages_queued_while_away",
    "wills.not_after_disconnect",
    "run_large.there_and_back",
]
PYTHONS = ["cpython", "micropython"]
CUTS = 12
_run_number = itertools.count()


@pytest.fixture(scope="module")
def websockets_broker() -> Iterator[tuple[Broker, int]]:
    """A broker and its port for WebSockets."""
    running, port = mosquitto_with_websockets()
    with running:
        yield running, port


def run(python: str, scenario: str, port: int, mask: str) -> list[list[str]]:
    """Run a scenario to its end, and return the words of the lines in which it reports."""
    module, function = scenario.split(".")
    heard: list[list[str]] = []
    arguments = ["host=127.0.0.1", f"port={port}", f"token=ws{next(_run_number)}", f"mask={mask}"]
    script = str(HERE / "run_over_websocket.py")
    tests = Path(conftest.__file__).parent
    converse(
        [*interpreter_command(python, HEAP), script, module, function, *arguments],
        interpreter.environment(library(python), tests, tests / "scenarios", HERE),
        DEADLINE,
        lambda words: None,
        heard.append,
    )
    return heard


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(
    scenario: str, python: str, mask: str, websockets_broker: tuple[Broker, int]
) -> None:
    run(python, scenario, websockets_broker[1], mask)


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("python", PYTHONS)
def test_byte_by_byte(python: str, mask: str, websockets_broker: tuple[Broker, int]) -> None:
    rules = Rules(Way(trickle=True), Way(trickle=True))
    with Proxy("127.0.0.1", websockets_broker[1], lambda count: rules) as proxy:
        for scenario in ("publish_subscribe.each_qos_to_each", "large.from_a_buffer"):
            run(python, scenario, proxy.port, mask)


def _cut_up(count: int) -> Rules:
    return Rules(up=Way(limit=190 + 97 * count)) if count < CUTS else Rules()


def _cut_down(count: int) -> Rules:
    return Rules(down=Way(limit=20 + 83 * count)) if count < CUTS else Rules()


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("rules", [_cut_up, _cut_down], ids=["up", "down"])
@pytest.mark.parametrize("python", PYTHONS)
def test_each_message_arrives_once_though_connections_are_cut(
    python: str,
    rules: Callable[[int], Rules],
    mask: str,
    websockets_broker: tuple[Broker, int],
) -> None:
    """In the upgrade, in a header, in a payload: wherever the bytes run out."""
    with Proxy("127.0.0.1", websockets_broker[1], rules) as proxy:
        (words,) = run(python, "run_outages.each_message_once", proxy.port, mask)[:1]
    assert words[0] == "@losses"
    assert int(words[1]) >= CUTS // 2  # what is resent decides how many cuts it takes
