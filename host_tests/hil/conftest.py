"""The fixtures of the tests with an emulated board."""

import time
from types import SimpleNamespace

import pytest
from mpremote import transport_serial


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpremote looks every 10 ms whether the board has answered; an emulated one has by then."""
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda s: time.sleep(s / 10))
    monkeypatch.setattr(transport_serial, "time", clock)
