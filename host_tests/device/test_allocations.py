"""Nothing that a client does once it is online allocates: proof.py says how it is proven."""

import pytest

from conftest import SharedBrokers
from device import on_device

VERSIONS = (4, 5)  # of MQTT: 3.1.1 and 5
BOTH = (
    "publishing",
    "packing",
    "receiving",
    "receiving_in_pieces",
    "connection",
    "serial_line",
)
ONLY_5 = ("v5_publishing", "v5_receiving", "v5_answers", "v5_replies")
SCRIPTED = [
    pytest.param(module, name, version, id=f"{module}-{name}-{version}")
    for module in (*BOTH, *ONLY_5)
    for name in on_device.operations(module)
    for version in (VERSIONS if module in BOTH else (5,))
]


@pytest.mark.parametrize(("module", "name", "version"), SCRIPTED)
def test_with_a_scripted_peer(module: str, name: str, version: int) -> None:
    assert on_device.proof(module, name, version=version) == on_device.NOTHING


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", on_device.operations("sockets"))
def test_with_a_broker(name: str, version: int, shared_brokers: SharedBrokers) -> None:
    peer = shared_brokers.get("mosquitto", "shared")
    assert on_device.proof("sockets", name, peer, version=version) == on_device.NOTHING


@pytest.mark.parametrize("name", on_device.operations("v5_sockets"))
def test_with_a_broker_at_5(name: str, shared_brokers: SharedBrokers) -> None:
    peer = shared_brokers.get("mosquitto", "shared")
    assert on_device.proof("v5_sockets", name, peer, version=5) == on_device.NOTHING


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", on_device.operations("waiting"))
def test_while_it_is_not_online_a_poll_leaves_nothing_behind(name: str, version: int) -> None:
    seen = on_device.proof("waiting", name, version=version)
    # The frame of Client._connect is on the heap, and given back when it returns.
    assert (seen.kept, seen.refused) == (0, False)
