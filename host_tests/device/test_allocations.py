"""Nothing that a client does once it is online allocates: proof.py says how it is proven."""

import pytest

from device import on_device
from flatmq_tools.broker import Broker

# Of MQTT: 3.1.1, 5, and 5 with properties in each message.
VERSIONS = (4, 5, "5+")
SCRIPTED = {
    "publishing": VERSIONS,
    "receiving": VERSIONS,
    "receiving_in_pieces": VERSIONS,
    "connection": VERSIONS,
    "home_assistant": VERSIONS,
    "packing": (4, 5),
    "reporting": (4, 5),
    "serial_line": (4, 5),
    "v5_publishing": (5,),
    "v5_receiving": (5,),
    "v5_answers": (5,),
    "v5_replies": (5,),
}
SOCKETS = {"sockets": VERSIONS, "v5_sockets": (5,)}


def _each(modules: dict) -> pytest.MarkDecorator:
    cases = [
        pytest.param(module, name, version, id=f"{module}-{name}-{version}")
        for module, versions in modules.items()
        for name in on_device.operations(module)
        for version in versions
    ]
    return pytest.mark.parametrize(("module", "name", "version"), cases)


@_each(SCRIPTED)
def test_with_a_scripted_peer(module: str, name: str, version: int | str) -> None:
    assert on_device.proof(module, name, version=version) == on_device.NOTHING


@_each(SOCKETS)
def test_with_a_broker(module: str, name: str, version: int | str, near: Broker) -> None:
    assert on_device.proof(module, name, near, version=version) == on_device.NOTHING


@_each({"waiting": (4, 5)})
def test_while_it_is_not_online_a_poll_leaves_nothing_behind(
    module: str, name: str, version: int
) -> None:
    seen = on_device.proof(module, name, version=version)
    # The frame of Client._connect is on the heap, and given back when it returns.
    assert (seen.kept, seen.refused) == (0, False)
