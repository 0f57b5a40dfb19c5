"""Nothing that a client does over WebSocket once it is online allocates: see proof.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from device import on_device
from flatmq_rigs.links import Listening
from flatmq_tools.broker import Broker


@pytest.fixture(scope="module")
def listener() -> Iterator[Broker]:
    """A broker whose address is that of its listener for WebSockets."""
    with Listening("websocket") as listening:
        yield Broker(listening.broker.host, listening.port)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("name", on_device.operations("websocket_broker"))
def test_with_a_broker(name: str, version: int, listener: Broker) -> None:
    seen = on_device.proof("websocket_broker", name, listener, version=version)
    assert seen == on_device.NOTHING


@pytest.mark.parametrize("name", on_device.operations("websocket_scripted"))
def test_with_a_scripted_peer(name: str) -> None:
    assert on_device.proof("websocket_scripted", name) == on_device.NOTHING
