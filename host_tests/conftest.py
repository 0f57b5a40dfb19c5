"""What the tests on the desk share: interpreters and brokers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from aedes_broker import Aedes
from flatmq_tools import broker, bytecode, interpreter

collect_ignore = [] if sys.version_info >= (3, 11) else ["pipeline"]

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
LIB = ROOT / "lib"

# The same examples in every run. `pytest --hypothesis-profile=search` looks at others, and longer.
_any_speed = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=_any_speed,
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


def kinds(way: str) -> list[str]:
    """The brokers that there are in that way."""
    return [kind for kind, ways in BROKERS.items() if way in ways]


def interpreter_command(name: str, heap: str) -> list[str]:
    """The command that starts "cpython" or "micropython"; the test fails where there is none."""
    if name == "cpython":
        return [sys.executable]
    found = interpreter.command(heap)
    if found is None:
        pytest.fail(interpreter.MISSING)
    return found


def library(name: str) -> Path:
    """The folder from which "cpython" or "micropython" imports the client: as source, and as
    .mpy as on a board."""
    return LIB if name == "cpython" else bytecode.library()


class SharedBrokers:
    """Starts each broker once for all tests that do not hurt it."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], broker.Broker] = {}

    def get(self, kind: str, way: str) -> broker.Broker:
        """The running broker of that kind, set up in that way."""
        if (kind, way) not in self._running:
            self._running[kind, way] = BROKERS[kind][way]()
        return self._running[kind, way]

    def stop(self) -> None:
        """Ends them all."""
        for running in self._running.values():
            running.stop()


@pytest.fixture(scope="session")
def shared_brokers() -> Iterator[SharedBrokers]:
    shared = SharedBrokers()
    yield shared
    shared.stop()
