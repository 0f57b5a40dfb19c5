"""A broker with TLS listeners of several kinds, and the certificates that belong to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tls.secure_broker import SecureBroker


@pytest.fixture(scope="session")
def secure() -> Iterator[SecureBroker]:
    running = SecureBroker()
    yield running
    running.stop()
