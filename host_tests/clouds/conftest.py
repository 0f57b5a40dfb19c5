"""The brokers of the page, once for all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from .services import Services


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        yield Services(stack)
