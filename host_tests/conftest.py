"""The interpreters, brokers and clock that the host tests share."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest import runner
from hypothesis import HealthCheck, settings

import sizes
from aedes_broker import Aedes
from brokers.fake import FakeBroker
from flatmq_tools import broker, bytecode, interpreter
from packets.properties import Id
from unit.fake_link import Clock, fake_clock

if TYPE_CHECKING:
    from tls.secure_broker import SecureBroker

collect_ignore = [] if sys.version_info >= (3, 11) else ["pipeline"]

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
LIB = ROOT / "lib"
PYTHONS = ("cpython", "micropython")
sys.path.append(str(ROOT / "boards" / "shared"))  # what a board has in /lib

# The same examples in every run. `pytest --hypothesis-profile=search` looks at others, and longer.
_any_speed = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=_any_speed
)
settings.register_profile(
    "search", max_examples=5000, deadline=None, suppress_health_check=_any_speed
)
settings.load_profile("same")

USERS = {"alice": "s3cret"}
LARGEST = 400  # bytes of a packet that the "limited" mosquitto takes

# The brokers, each in the ways in which a scenario may want it. The embedded one keeps nothing
# on disk, so that its "durable" one shows what a broker that forgets does. A way that only one of
# them has is for what only that one does.
BROKERS: dict[str, dict[str, Callable[[], broker.Broker]]] = {
    "mosquitto": {
        "shared": broker.mosquitto,
        "own": broker.mosquitto,
        "durable": lambda: broker.mosquitto(persistence=True),
        "users": lambda: broker.mosquitto(users=USERS),
        "limited": lambda: broker.mosquitto(extra=f"max_packet_size {LARGEST}"),
    },
    "embedded": {
        "shared": broker.embedded,
        "own": broker.embedded,
        "durable": broker.embedded,
        "users": lambda: broker.embedded(users=USERS),
    },
    "aedes": {"shared": Aedes, "forbidding": Aedes},
}
# Those for MQTT 5. The embedded broker has a listener for one version.
BROKERS5: dict[str, dict[str, Callable[[], broker.Broker]]] = {
    "mosquitto": {
        **BROKERS["mosquitto"],
        # Its Receive Maximum is 2.
        "narrow": lambda: broker.mosquitto(extra="max_inflight_messages 2"),
        "guarded": lambda: broker.mosquitto(acl="topic readwrite #\ntopic deny +/forbidden\n"),
    },
    "embedded": {
        "shared": lambda: broker.embedded(version=5),
        "own": lambda: broker.embedded(version=5),
        "durable": lambda: broker.embedded(version=5),
        "users": lambda: broker.embedded(users=USERS, version=5),
    },
    # The scripted broker, which holds clients to the standard.
    "fake": {
        "shared": FakeBroker,
        # As for many a service in a cloud: it has no subscription identifiers.
        "plain": lambda: FakeBroker(announces=[(Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 0)]),
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole", action="store_true", help="run all of each proof instead of a sample"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much runs, and have Ctrl-C end what tests start.

    The latter also where a shell started pytest in the background.
    """
    sizes.set_whole(config.getoption("--whole"))
    config.addinivalue_line("markers", "proof: runs with --whole only; `make test` leaves it out")
    # pytest would name the test that runs in the environment, which is then half changed when a
    # thread starts a process, or copies it.
    runner._update_current_test_var = lambda item, when: None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Files whose tests take long and share little: each may run in any process of `pytest -n`.
APART = ("spool/test_powercut.py", "test_soak.py")
# What shares a session of Spark shares a process: two, as one would be at work to the end alone.
SPARK = "spark"
RUNS = "runs of the pipeline"
OF_RUNS = [
    f"pipeline/test_{name}.py" for name in ("run", "crash", "service", "maintenance", "source")
]
# What takes longest begins first, so that no process is left alone with it at the end.
LONGEST = (
    SPARK, RUNS, "pages/test_desk_commands.py", "faults/test_faults.py", "tls/test_tls.py",
    "hil/test_hil.py", *APART, "test_scenarios.py",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the hook of pytest-xdist, which reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out proofs that only run whole, and group what shares what takes long.

    `pytest -n` runs a group in the same process.
    """
    if not sizes.whole():
        left_out = [item for item in items if item.get_closest_marker("proof")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("proof")]
    ranks = {}
    for item in items:
        file = str(item.path.relative_to(HERE))
        group = file
        if "spark" in getattr(item, "fixturenames", ()):
            group = RUNS if file in OF_RUNS else SPARK
        ranks[item] = LONGEST.index(group) if group in LONGEST else len(LONGEST)
        if group not in APART:
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):  # a process of `pytest -n`
        items.sort(key=ranks.__getitem__)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the command that runs each failed test alone."""
    reports = terminalreporter.stats
    failed = dict.fromkeys(
        report.nodeid for kind in ("failed", "error") for report in reports.get(kind, ())
    )
    if failed:
        terminalreporter.section("to run a failed test alone")
        option = " --whole" if sizes.whole() else ""
        for nodeid in failed:
            test = re.sub(r"@[\w./]+$", "", nodeid)  # pytest-xdist appends the group
            terminalreporter.line(f".venv/bin/pytest{option} {shlex.quote(test)}")


def ways(kind: str, version: int | None = 4) -> dict[str, Callable[[], broker.Broker]]:
    """The ways in which there is a broker for clients of `version`; empty if it has none."""
    return (BROKERS5 if version == 5 else BROKERS).get(kind, {})


def kinds(way: str, version: int | None = 4) -> list[str]:
    """The brokers that there are in that way for clients of `version`."""
    brokers = BROKERS5 if version == 5 else BROKERS
    return [kind for kind, found in brokers.items() if way in found]


def interpreter_command(name: str, heap: str) -> list[str]:
    """The command that starts "cpython" or "micropython"; the test fails where there is none."""
    if name == "cpython":
        return [sys.executable]
    found = interpreter.command(heap)
    if found is None:
        pytest.fail(interpreter.MISSING)
    return found


def ran(command: Sequence[object], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, however it ends."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **more
    )


def printed(
    name: str, heap: str, *words: object, folders: Iterable[Path] = (), timeout: float = 60
) -> str:
    """Return what an interpreter prints that imports from `folders`; it must end well."""
    command = [*interpreter_command(name, heap), *map(str, words)]
    done = ran(command, env=interpreter.environment(*folders), timeout=timeout)
    assert done.returncode == 0, interpreter.last_words(done)
    return done.stdout


def seen(
    heap: str, *words: object, folders: Iterable[Path] = (), timeout: float = 60
) -> list[str]:
    """Return the words behind "SEEN", with which the last line that MicroPython prints begins."""
    said = printed("micropython", heap, *words, folders=folders, timeout=timeout)
    mark, *found = said.splitlines()[-1].split() if said else [""]
    assert mark == "SEEN", said
    return found


def library(name: str) -> Path:
    """Return the folder from which "cpython" or "micropython" imports the client.

    The first has it as source, the second as .mpy as on a board.
    """
    return LIB if name == "cpython" else bytecode.library()


class SharedBrokers:
    """Starts each broker once for all tests that do not hurt it."""

    def __init__(self) -> None:
        self._running: dict[Callable[[], broker.Broker], broker.Broker] = {}
        self._lock = threading.Lock()

    def get(self, kind: str, way: str, version: int | None = 4) -> broker.Broker:
        """The running broker of that kind, set up in that way, for clients of `version`."""
        start = ways(kind, version)[way]
        with self._lock:
            if start not in self._running:
                self._running[start] = start()
            return self._running[start]

    def stop(self) -> None:
        """End them all."""
        for running in self._running.values():
            running.stop()


@pytest.fixture(scope="session")
def shared_brokers() -> Iterator[SharedBrokers]:
    shared = SharedBrokers()
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def near(shared_brokers: SharedBrokers) -> broker.Broker:
    """The mosquitto that tests share."""
    return shared_brokers.get("mosquitto", "shared")


@pytest.fixture
def running() -> Iterator[broker.Broker]:
    """A broker of the test's own."""
    with broker.embedded() as running:
        yield running


@pytest.fixture(scope="session")
def secure() -> Iterator[SecureBroker]:
    """A broker with a listener for each way to have TLS."""
    from tls.secure_broker import SecureBroker

    running = SecureBroker()
    yield running
    running.stop()


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The clock of clients that are not connected to a network: it moves only when a test says."""
    with fake_clock() as clock:
        yield clock
