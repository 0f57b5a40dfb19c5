"""The programs of docs/asyncio.md do what the page says, on both interpreters."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import ROOT, SharedBrokers, interpreter_command, library
from flatmq import Client
from flatmq_tools import interpreter
from flatmq_tools.proxy import Proxy

PAGE = (ROOT / "docs" / "asyncio.md").read_text()
EXAMPLE, MOVED = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PATIENCE = 30.0  # seconds that any one step may take

# What the page takes for granted around the second program.
AROUND = """\
import asyncio
from flatmq.aio import Client

{program}

async def main():
    async with Client(b"moved", "192.168.1.10", retry_ms=20) as client:
        await asyncio.gather(messages(client), up(client))

asyncio.run(main())
"""


@pytest.fixture
def proxy(shared_brokers: SharedBrokers) -> Iterator[Proxy]:
    broker = shared_brokers.get("mosquitto", "own")
    with Proxy(broker.host, broker.port) as made:
        yield made


@contextmanager
def _running(python: str, source: str, proxy: Proxy, folder: Path) -> Iterator[Path]:
    """Runs a program; gives the file with what it prints."""
    program, output = folder / "program.py", folder / "output.txt"
    assert '"192.168.1.10"' in source
    program.write_text(source.replace('"192.168.1.10"', f'"{proxy.host}", {proxy.port}'))
    command = interpreter_command(python, "192k")
    if python == "cpython":
        command.append("-u")
    with output.open("w") as written:
        process = subprocess.Popen(
            [*command, str(program)],
            env=interpreter.environment(library(python)),
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        yield output
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()


class Peer:
    """Somebody else at the same broker, who hears everything."""

    def __init__(self, shared_brokers: SharedBrokers) -> None:
        broker = shared_brokers.get("mosquitto", "own")
        self.heard: list[tuple[bytes, bytes]] = []
        self.client = Client(b"peer", broker.host, broker.port)
        made = self.client.subscribe(b"#", lambda m: self.heard.append((m.topic, m.payload)), 1)
        self.client.connect()
        self.until(lambda: made.granted is not None)

    def until(self, condition: Callable[[], bool], again: Callable[[], object] = int) -> None:
        """Poll until a condition holds; does `again` now and then."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.heard
            again()
            self.client.poll(50)


@pytest.fixture
def peer(shared_brokers: SharedBrokers) -> Iterator[Peer]:
    made = Peer(shared_brokers)
    yield made
    made.client.disconnect()


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_the_example_answers(python: str, proxy: Proxy, peer: Peer, tmp_path: Path) -> None:
    with _running(python, EXAMPLE, proxy, tmp_path):
        peer.until(lambda: (b"dev/pico-1/status", b"online") in peer.heard)
        # It may not have subscribed yet.
        peer.until(
            lambda: (b"dev/pico-1/answer", b"hello yourself") in peer.heard,
            lambda: peer.client.publish(b"dev/pico-1/cmd", b"hello"),
        )


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_the_program_that_was_moved(python: str, proxy: Proxy, peer: Peer, tmp_path: Path) -> None:
    with _running(python, AROUND.format(program=MOVED), proxy, tmp_path) as output:
        for n in range(1, 4):
            peer.until(lambda n=n: peer.heard.count((b"result", b"1")) >= n)
            peer.until(
                lambda n=n: f"message {n}" in output.read_text(),
                lambda n=n: peer.client.publish(b"foo_topic", b"message %d" % n),
            )
            proxy.strike("cut")
        assert "b'foo_topic' b'message 1' 0" in output.read_text()
