"""A small heap is enough, and stays as free as it was at first."""

import pytest

import sizes
from device import on_device
from flatmq_tools.broker import Broker


def test_a_sketch_runs_in_a_small_heap(near: Broker) -> None:
    arguments = (near.host, str(near.port))
    assert on_device.run("sketch.py", *arguments, heap=on_device.HEAP) == ["21.5"]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("name", "steps"), [
    pytest.param("ten_mixed_messages", 100 if sizes.whole() else 20, id="mixed messages"),
    pytest.param("reconnect_over_tcp", 20, id="20 reconnects"),
    pytest.param("reconnect_after_a_loss", 20, id="20 losses"),
    pytest.param("reconnect_after_a_refusal", 20, id="20 refusals"),
])  # fmt: skip
def test_the_heap_is_where_it_was(name: str, steps: int, version: int, near: Broker) -> None:
    assert on_device.growth("settling", name, steps, near, version) == 0


def test_a_heap_that_grows_is_seen() -> None:
    assert on_device.growth("settling", "keeping_each_message", 20) > 0
