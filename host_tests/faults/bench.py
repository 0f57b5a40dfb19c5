"""Run the scenarios, each in an interpreter of its own, several side by side."""

from __future__ import annotations

import concurrent.futures
import itertools
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conftest import PYTHONS, interpreter_command
from flatmq_rigs.links import Listening
from flatmq_tools import bytecode, interpreter
from scenario_child import ScenarioError, converse

from .catalogue import LINKS, OVER, SCENARIOS, Scenario, brokers, heap, version
from .stage import MOSQUITTO, UNBOUNDED, Stage

HERE = Path(__file__).parent
SHARED = HERE.parent
LIB = SHARED.parent / "lib"
DEADLINE = 240  # seconds until a scenario is ended from outside; it gives up by itself before
SIDE_BY_SIDE = 10  # most of them wait most of the time
_LOGGED = 2000  # characters of the log of a broker that ended by itself

_run_number = itertools.count()


@dataclass(frozen=True)
class Case:
    """A scenario on a broker and an interpreter."""

    scenario: Scenario
    broker: str
    python: str

    def __str__(self) -> str:
        return f"{self.scenario.title}, {self.broker}, {self.python}"


@dataclass
class Row:
    """The result of a case.

    Times are in ms; `problems` is empty when all is well.
    """

    case: Case
    saw: str = ""
    after: int = 0
    longest: float = 0
    heap: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    told: str = ""  # all that the interpreter printed, where something went wrong

    @property
    def ok(self) -> bool:
        """True if every promise was kept."""
        return not self.problems


def cases(waiting_first: bool = True) -> list[Case]:
    """All there are, in the order of the catalogue, or those first that wait most."""
    return [
        Case(scenario, kind, python)
        for scenario in sorted(SCENARIOS, key=lambda s: waiting_first and not s.waits)
        for kind in brokers(scenario)
        for python in PYTHONS
    ]


class Bench:
    """The resources that the cases share.

    They are a mosquitto for each link that nobody kills, and the client as .mpy.

    `is_long` has every scenario run in its long version. As a context manager it ends what it
    started.
    """

    def __init__(self, is_long: bool = False) -> None:
        self._long = is_long
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-faults-")
        self._mosquitto: dict[str, Listening] = {}
        self._environments: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Bench:
        made = Path(self._folder.name)
        bytecode.compiled(made)
        for source in [SHARED / "scenario_env.py", *(HERE / "client").glob("*.py")]:
            bytecode.compile_module(source, made / f"{source.stem}.mpy", source.name)
        # Once, as pytest changes os.environ while the threads run.
        self._environments = {
            "cpython": interpreter.environment(LIB, SHARED, HERE / "client"),
            "micropython": interpreter.environment(made),
        }
        return self

    def __exit__(self, *_exception: object) -> None:
        for listening in self._mosquitto.values():
            listening.stop()
        self._folder.cleanup()

    def _shared(self, link: str) -> Listening:
        with self._lock:
            if link not in self._mosquitto:
                self._mosquitto[link] = Listening(link, extra=MOSQUITTO + UNBOUNDED)
            return self._mosquitto[link]

    def run(self, case: Case) -> Row:
        scenario = case.scenario
        token = f"run{next(_run_number)}"
        row = Row(case)
        output: list[str] = []
        own = scenario.own or case.broker.startswith("fake")
        shared = None if own else self._shared(LINKS[case.broker])
        stage: Stage | None = None
        try:
            with Stage(case.broker, token, shared) as stage:
                output = converse(
                    self._command(case, stage, token),
                    self._environments[case.python],
                    DEADLINE,
                    stage.carry_out,
                    stage.hear,
                )
                row.problems = stage.problems()
        except ScenarioError as error:
            row.problems, row.told = ["it did not come to its end"], str(error)
        except Exception as error:
            row.problems = [f"{type(error).__name__}: {error}"]
        if stage:
            row.saw = "; then ".join(dict.fromkeys(stage.saw))
            row.after = stage.after
            row.longest = stage.longest / 1000
            row.heap = stage.heap
        if not row.problems and case.python == "micropython" and max(row.heap, default=0) > 0:
            row.problems.append(f"heap: {row.heap} bytes more than before")
        if not row.problems and not (row.saw and row.longest and row.heap):
            row.problems.append("it told nothing")
        if row.problems and not row.told:
            row.told = "\n".join(output)
        if shared and shared.broker.status is not None:
            row.problems.insert(0, f"mosquitto ended with status {shared.broker.status}")
            row.told += "\n" + shared.broker.log()[-_LOGGED:]
        return row

    def _command(self, case: Case, stage: Stage, token: str) -> list[str]:
        # What a failed handshake loads on top of all else is met by chance.
        twice = case.scenario.twice or (case.broker in OVER and case.scenario.module == "often")
        return [
            *interpreter_command(case.python, heap(case.scenario, case.broker)),
            "-m",
            "fault_env",
            case.scenario.module,
            case.scenario.function,
            f"host={stage.proxy.host}",
            f"port={stage.proxy.port}",
            f"link={LINKS[case.broker]}",
            f"version={version(case.broker)}",
            f"ca={stage.ca}",
            f"token={token}",
            f"option={case.scenario.option}",
            f"client={case.scenario.client}",
            f"wraps={case.scenario.wraps}",
            f"twice={int(twice)}",
            f"long={int(self._long)}",
        ]

    def run_all(self, wanted: Iterable[Case]) -> Iterator[Row]:
        """Rows as they come."""
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            futures = [pool.submit(self.run, case) for case in wanted]
            try:
                for future in concurrent.futures.as_completed(futures):
                    yield future.result()
            finally:
                for future in futures:
                    future.cancel()
