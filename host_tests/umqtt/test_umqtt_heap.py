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


def test_umqtt_allocates_more(tmp_path: Path) -> None:
    program = umqtt_stage.PROGRAMS / "heap.py"
    before = umqtt_stage.cases(umqtt_stage.run(program, "umqtt", "micropython").printed)
    after = umqtt_stage.moved(program, tmp_path)
    heap = umqtt_stage.cases(umqtt_stage.run(after, "flatmq", "micropython").printed)
    received = int(heap.pop("receive"))
    assert set(heap.values()) == {"0"}
    assert 40 <= received < int(before["receive"])
