"""With several processes, `make test` has what takes long started by one of them alone."""

from __future__ import annotations

import pytest


def test_the_tests_of_a_file_stay_together(request: pytest.FixtureRequest) -> None:
    """A pytest that pytest-xdist does not know lets each process start a Spark of its own."""
    grouped = request.node.nodeid.endswith("@test_processes.py")
    assert grouped == request.config.getoption("loadgroup", False), f"pytest {pytest.__version__}"
