"""The guide keeps its word: its sketches run. And the README is short.

`test_examples.py` runs the program of the README.
"""

from __future__ import annotations

import queue
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt import client as paho

import sizes
from conftest import BROKERS, LIB, ROOT, SharedBrokers, interpreter_command
from flatmq_tools import interpreter

README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "guide.md").read_text()
ANSWER = 20.0  # seconds that a message may take


Peer = tuple[paho.Client, "queue.Queue[tuple[str, bytes]]", int]

PYTHONS = ("cpython", "micropython")
CASES = [
    (page, python, kind) for page in ("guide", "script") for python in PYTHONS for kind in BROKERS
]


@pytest.fixture
def peer(case: tuple[str, str, str], shared_brokers: SharedBrokers) -> Iterator[Peer]:
    """A paho client that is subscribed to everything, what it gets, and the broker's port."""
    broker = shared_brokers.get(case[2], "shared")
    messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
    subscribed: queue.Queue[bool] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = lambda _c, _d, m: messages.put((m.topic, bytes(m.payload)))
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe("dev/#", 1)
    assert subscribed.get(timeout=ANSWER)
    yield client, messages, broker.port
    client.disconnect()
    client.loop_stop()


def _await(messages: queue.Queue[tuple[str, bytes]], wanted: tuple[str, bytes]) -> None:
    while messages.get(timeout=ANSWER) != wanted:
        pass


def _blocks(text: str) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def _started(code: str, python: str, port: int, folder: Path) -> subprocess.Popen[str]:
    """Run code of a page with the broker at `port`."""
    assert code.count('"192.168.1.10"') == 1
    script = folder / "sketch.py"
    script.write_text(code.replace('"192.168.1.10"', f'"127.0.0.1", {port}'))
    return subprocess.Popen(
        [*interpreter_command(python, "128k"), str(script)],
        env=interpreter.environment(LIB),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("case", sizes.one_each(CASES, lambda case: case[:2]), ids="-".join)
def test_the_code_of_the_page_runs(case: tuple[str, str, str], peer: Peer, tmp_path: Path) -> None:
    client, messages, port = peer
    page, python, _kind = case
    script = next(code for code in _blocks(GUIDE) if ".disconnect(" in code)
    code = script if page == "script" else _blocks(GUIDE)[0]
    process = _started(code, python, port, tmp_path)
    try:
        if page == "script":
            _await(messages, ("dev/pico-1/cmd", b"hello"))
            assert process.wait(ANSWER) == 0
        else:
            _await(messages, ("dev/pico-1/status", b"online"))
            client.publish("dev/pico-1/cmd", b"hello", 1)
            _await(messages, ("dev/pico-1/answer", b"hello yourself"))
            assert process.poll() is None
            process.kill()
            _await(messages, ("dev/pico-1/status", b"offline"))
    finally:
        process.kill()
        output = process.communicate()[0]
        print(output)
    assert output == ""


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert "OWNER" not in README


def test_ci_runs_what_the_readme_says() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
