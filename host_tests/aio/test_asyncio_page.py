"""The example of docs/asyncio.md does what the page says, on both interpreters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aio.aio_stage import Peer, running
from conftest import ROOT, SharedBrokers
from flatmq_rigs.proxy import Proxy

PAGE = (ROOT / "docs" / "asyncio.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def proxy(shared_brokers: SharedBrokers) -> Iterator[Proxy]:
    broker = shared_brokers.get("mosquitto", "own")
    with Proxy(broker.host, broker.port) as made:
        yield made


@pytest.fixture
def peer(shared_brokers: SharedBrokers) -> Iterator[Peer]:
    made = Peer(shared_brokers.get("mosquitto", "own"))
    yield made
    made.client.disconnect()


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_the_example_answers(python: str, proxy: Proxy, peer: Peer, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    assert '"192.168.1.10"' in EXAMPLE
    program.write_text(EXAMPLE.replace('"192.168.1.10"', f'"{proxy.host}", {proxy.port}'))
    with running(python, program, tmp_path / "output.txt"):
        peer.until(lambda: b"online" in peer.payloads(b"dev/pico-1/status"))
        # It may not have subscribed yet.
        peer.until(
            lambda: b"hello yourself" in peer.payloads(b"dev/pico-1/answer"),
            lambda: peer.client.publish(b"dev/pico-1/cmd", b"hello"),
        )
