"""Clients without a network at both versions of MQTT."""

from collections.abc import Callable
from functools import partial

import pytest

from unit.both_versions import VERSIONS, VersionBench
from unit.fake_link import Clock


@pytest.fixture(params=VERSIONS, ids=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> int:
    """The version of MQTT."""
    return request.param


@pytest.fixture
def make(version: int, clock: Clock) -> Callable[..., VersionBench]:
    """A function that makes a client of that version with these options."""
    return partial(VersionBench, clock, version)


@pytest.fixture
def bench(make: Callable[..., VersionBench]) -> VersionBench:
    """A client that is online and has sent nothing but its CONNECT."""
    bench = make().online()
    assert (bench.client.connected, bench.sent()) == (True, [])
    return bench
