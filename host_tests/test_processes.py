"""Tests that share something slow to start run in the same process of `make test`."""

from __future__ import annotations

import pytest


def test_the_tests_of_a_file_stay_together(request: pytest.FixtureRequest) -> None:
    """If pytest-xdist does not group the tests of this pytest, each process starts a Spark."""
    grouped = request.node.nodeid.endswith("@test_processes.py")
    assert grouped == request.config.getoption("loadgroup", False), f"pytest {pytest.__version__}"
