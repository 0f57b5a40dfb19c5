"""Nothing that a client does once it is online allocates: proof.py says how it is proven."""

import pytest

import on_device
from conftest import SharedBrokers

SCRIPTED = [
    pytest.param(module, name, id=f"{module}-{name}")
    for module in (
        "publishing",
        "packing",
        "receiving",
        "receiving_in_pieces",
        "connection",
        "serial_line",
    )
    for name in on_device.operations(module)
]


@pytest.mark.parametrize(("module", "name"), SCRIPTED)
def test_with_a_scripted_peer(module: str, name: str) -> None:
    assert on_device.proof(module, name) == on_device.NOTHING


@pytest.mark.parametrize("name", on_device.operations("sockets"))
def test_with_a_broker(name: str, shared_brokers: SharedBrokers) -> None:
    peer = shared_brokers.get("mosquitto", "shared")
    assert on_device.proof("sockets", name, peer) == on_device.NOTHING


@pytest.mark.parametrize("name", on_device.operations("waiting"))
def test_while_it_is_not_online_a_poll_leaves_nothing_behind(name: str) -> None:
    seen = on_device.proof("waiting", name)
    # The frame of Client._connect is on the heap, and given back when it returns.
    assert (seen.kept, seen.refused) == (0, False)
