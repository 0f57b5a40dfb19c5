"""A program allocates nothing by its calls of flatmq.umqtt, but for the messages it receives."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import SharedBrokers
from device import on_device
from umqtt import umqtt_stage


@pytest.mark.parametrize("name", on_device.operations("umqtt_calls"))
def test_a_call_allocates_nothing(name: str, shared_brokers: SharedBrokers) -> None:
    peer = shared_brokers.get("mosquitto", "shared")
    assert on_device.proof("umqtt_calls", name, peer) == on_device.NOTHING


def _heap(program: Path, which: str) -> dict[str, int]:
    lines = umqtt_stage.run(program, which, "micropython").printed
    cases = [line.split() for line in lines if line.startswith("case ")]
    return {name: int(heap) for _, name, heap in cases}


def test_umqtt_allocates_more(tmp_path: Path) -> None:
    program = umqtt_stage.PROGRAMS / "heap.py"
    before = _heap(program, "umqtt")
    after = tmp_path / "heap.py"
    after.write_text(umqtt_stage.moved(program.read_text()))
    heap = _heap(after, "flatmq")
    received = heap.pop("receive")
    print(f"umqtt {before}, flatmq {heap}, received {received}")
    assert set(heap.values()) == {0}
    assert 40 <= received < before["receive"]
