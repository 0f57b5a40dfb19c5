"""A clock that moves with each look at it."""

import itertools
from collections.abc import Iterator
from unittest import mock

import pytest

import flatmq.port


@pytest.fixture
def ticking() -> Iterator[None]:
    """A clock for clients that are not connected to a network."""
    ticks = itertools.count(1)
    with mock.patch.object(flatmq.port, "ticks_ms", ticks.__next__):
        yield
