"""The scripted broker that the tests of clients for MQTT 5 share."""

from collections.abc import Iterator

import pytest

from brokers.fake import FakeBroker
from v5.clients5 import serving


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker of the test's own, which does what the standard says unless it is set up."""
    with serving() as running:
        yield running
