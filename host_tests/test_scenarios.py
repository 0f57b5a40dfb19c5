"""The scenarios of scenarios/, on both interpreters and every broker that suits them.

Each runs once per version of MQTT, and with --whole on every broker and interpreter. A scenario
runs in an interpreter of its own and asks for what it cannot do itself: to have another process
killed, or the broker.
"""

import ast
import contextlib
import itertools
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import pytest

import peer
import sizes
from conftest import HERE, SharedBrokers, kinds, library, ways
from flatmq_tools.broker import Broker
from packets import build
from packets.strict import Connect
from scenario_child import play
from side_by_side import side_by_side

# Of MicroPython, for the client of a version, the scenario and its compiler. None falls back from
# MQTT 5 to 3.1.1.
HEAPS = {4: 128, 5: 192, None: 192}  # KB
DEADLINE = 60  # seconds until a scenario is ended from outside; it gives up by itself before
_run_number = itertools.count()


class Scenario(NamedTuple):
    """A public function of a module, and the way in which it needs its broker."""

    module: str
    function: str
    broker: str
    versions: tuple[int | None, ...]
    never: tuple[str, ...]  # kinds of brokers that it is not for
    more: int  # KB of heap beside those of HEAPS


def _scenarios() -> list[Scenario]:
    found = []
    for path in sorted((HERE / "scenarios").glob("*.py")):
        tree = ast.parse(path.read_text())
        constants = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in ("BROKER", "VERSIONS", "NEVER", "MORE_HEAP")
        }
        versions = constants.get("VERSIONS", (4, 5, None))
        for node in tree.body:
            # A victim is no scenario: one of them starts it.
            if isinstance(node, ast.FunctionDef) and node.name[0] != "_" and node.name != "victim":
                never = constants.get("NEVER", ())
                more = constants.get("MORE_HEAP", 0)
                found.append(
                    Scenario(path.stem, node.name, constants["BROKER"], versions, never, more)
                )
    return found


class Run(NamedTuple):
    """One scenario in its interpreter, whose wishes are carried out here."""

    python: str
    broker: Broker
    token: str
    version: int | None
    folder: Path
    more: int

    def finish(self, module: str, function: str, **option: str) -> list[str]:
        """Run it to its end and return what it printed; a failed assertion shows that."""
        return play(
            self.python,
            HERE / "run_scenario.py",
            *(module, function),
            heap=f"{HEAPS[self.version] + self.more}k",
            deadline=DEADLINE,
            folders=[HERE / "scenarios"],
            carry_out=self.carry_out,
            host=self.broker.host,
            port=self.broker.port,
            kind=self.broker.kind,
            token=self.token,
            version=self.version,
            folder=self.folder,
            **option,
        )

    def carry_out(self, words: list[str]) -> str | None:
        match words:
            case ["die"]:
                return None
            case ["broker", "kill"]:
                self.broker.kill()
            case ["broker", "restart"]:
                self.broker.restart()
            case ["broker", "freeze"]:
                self.broker.freeze()
            case ["publish", first, topic, payload]:
                self.publish(int(first, 16), topic.encode(), payload.encode())
            case ["kill", module, function, option]:
                output = self.finish(module, function, option=option)
                assert output[-1:] == ["@ask die"], "the victim did not live to be killed"
            case _:
                raise AssertionError(f"the scenario asks for something unknown: {words}")
        return "done"

    def publish(self, first: int, topic: bytes, payload: bytes) -> None:
        """Publish a message whose first byte is `first`, from a connection of its own."""
        where = (self.broker.host, self.broker.port)
        with socket.create_connection(where, timeout=DEADLINE) as connection:
            qos, retain, dup = first >> 1 & 3, first & 1, first >> 3 & 1
            name = f"{self.token}-asked".encode()
            if self.version == 5:
                hello = build.connect(Connect(name, keepalive=60))
                message = build.publish(topic, payload, qos, 1, retain=retain, dup=dup)
            else:
                hello = peer.packet(0x10, b"\0\4MQTT\4\2\0\x3c\0" + bytes((len(name),)) + name)
                message = peer.publish(topic, payload, qos, 1, retain=retain, dup=dup)
            # DISCONNECT comes last, so that the broker closes when it has dealt with all of it.
            connection.sendall(hello + message + peer.packet(0xE0))
            while connection.recv(100):
                pass


SCENARIOS = _scenarios()
NAMES = {4: "3.1.1", 5: "5", None: "5-or-3.1.1"}


class Case(NamedTuple):
    """A scenario on a broker and an interpreter, with clients of a version."""

    scenario: Scenario
    version: int | None
    kind: str
    python: str

    def __str__(self) -> str:
        s = self.scenario
        return f"{s.module}.{s.function}-{self.kind}-{NAMES[self.version]}-{self.python}"

    @property
    def kills(self) -> bool:
        """True if the broker may be killed: no other case can use it."""
        return self.scenario.broker in ("own", "durable")


# Clients that fall back are for the brokers that have 3.1.1 alone, but where a scenario asks for
# nothing else.
CASES = [
    Case(scenario, version, kind, python)
    for scenario in SCENARIOS
    for version in scenario.versions
    for kind in kinds(scenario.broker, version)
    if kind not in scenario.never
    if version is not None or kind != "mosquitto" or scenario.versions == (None,)
    for python in ("cpython", "micropython")
]


def _run(case: Case, shared: Broker | None, token: str, folder: Path) -> None:
    """Run a case to its end, on the broker that all share or on one that it starts."""
    scenario = case.scenario
    start = ways(case.kind, case.version)[scenario.broker]
    with contextlib.nullcontext(shared) if shared else start() as broker:
        run = Run(case.python, broker, token, case.version, folder, scenario.more)
        run.finish(scenario.module, scenario.function)
    assert getattr(broker, "complaints", []) == []


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
    shared_brokers: SharedBrokers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Case, Future[None]]]:
    """A run, now or later, of each case that is asked for."""
    folder = tmp_path_factory.mktemp("scenarios")

    def run(case: Case) -> None:
        way = case.scenario.broker
        shared = None if case.kills else shared_brokers.get(case.kind, way, case.version)
        number = next(_run_number)
        files = folder / str(number)
        files.mkdir()
        _run(case, shared, f"run{number}", files)

    library("micropython")  # compiled before the threads need it
    with side_by_side(request, test_scenario, run) as futures:
        yield futures


@pytest.mark.parametrize(
    "case", sizes.one_each(CASES, lambda case: case[:2], lambda case: case[1:], 6), ids=str
)
def test_scenario(case: Case, runs: dict[Case, Future[None]]) -> None:
    runs[case].result()


def test_every_module_has_scenarios() -> None:
    modules = {path.stem for path in (HERE / "scenarios").glob("*.py")}
    assert {scenario.module for scenario in SCENARIOS} == modules
