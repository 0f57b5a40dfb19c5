"""With `pytest -n`, what takes long is started by one process alone."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_file_stay_together(request: pytest.FixtureRequest) -> None:
    """A pytest that pytest-xdist does not know lets each process start a Spark of its own."""
    grouped = request.node.nodeid.endswith("@test_processes.py")
    assert grouped == ("PYTEST_XDIST_WORKER" in os.environ), f"pytest {pytest.__version__}"
