"""The scripted broker that the tests of clients for MQTT 5 share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from v5.broker5 import Broker5
from v5.clients5 import serving


@pytest.fixture
def broker() -> Iterator[Broker5]:
    """A broker of the test's own, which does what the standard says unless it is set up."""
    with serving() as running:
        yield running
