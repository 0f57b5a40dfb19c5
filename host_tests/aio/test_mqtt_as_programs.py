"""A program for mqtt_as and the same program moved to flatmq do the same at a real broker.

The moved one always runs, on both interpreters. mqtt_as is in no package index: to run the one
before the move too, on MicroPython, name a folder that has mqtt_as (0.8.3):

    MQTT_AS=/path/to/folder pytest host_tests/aio

This adds the tests that need it; without it they are not collected.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aio.aio_stage import HEAP, Peer, running
from conftest import ROOT, interpreter_command
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, bytecode, interpreter

PROGRAMS = Path(__file__).parent / "programs"
BOARD = PROGRAMS / "board"  # what a board has and the desk lacks: a radio
PAGE = (ROOT / "docs" / "asyncio.md").read_text()
OUTAGES = 3

_NAMED = os.environ.get("MQTT_AS")

# What before.py uses of mqtt_as: of the module, of its table `config`, and of MQTTClient.
MODULE = {"MQTTClient", "config"}
CONFIG = {"client_id", "server", "port", "ssid", "wifi_pw", "keepalive", "will", "queue_len"}
METHODS = {"connect", "publish", "subscribe"}
ATTRIBUTES = {"up", "down", "queue"}  # of an object, if queue_len is not 0


@pytest.fixture
def target() -> Iterator[broker.Broker]:
    with broker.mosquitto() as made:
        yield made


def _retained(target: broker.Broker) -> tuple[bytes, bool]:
    """Return what somebody who comes now gets as the status, and whether as a retained message."""
    late = Peer(target, b"late")
    late.until(lambda: any(topic == b"shed/status" for topic, _, _ in late.heard))
    late.client.disconnect()
    return next((text, retain) for topic, text, retain in late.heard if topic == b"shed/status")


def _works(target: broker.Broker, peer: Peer, output: Path, outages: int) -> None:
    """Check that the program is online after so many outages, and answers."""
    statuses = [b"online", *[b"offline", b"online"] * outages]
    peer.until(lambda: len(peer.payloads(b"shed/status")) >= len(statuses))
    assert peer.payloads(b"shed/status") == statuses
    assert _retained(target) == (b"online", True)
    assert output.read_text().count("lost") == outages

    command = b"command %d" % outages
    peer.client.publish(b"shed/command", command, qos=1)
    peer.until(lambda: command in peer.payloads(b"shed/answer"))
    assert f"b'shed/command' {command!r} False" in output.read_text()

    count = len(peer.payloads(b"shed/reading"))
    peer.until(lambda: len(peer.payloads(b"shed/reading")) >= count + 2)


def _is_gone(target: broker.Broker, peer: Peer) -> None:
    """Check that the broker publishes the will."""
    peer.until(lambda: peer.payloads(b"shed/status")[-1] == b"offline")
    assert _retained(target) == (b"offline", True)


def _does_its_work(
    program: str, python: str, folders: list[Path], target: broker.Broker, output: Path
) -> None:
    peer = Peer(target)
    with Proxy(target.host, target.port) as proxy:
        where = proxy.host, str(proxy.port)
        with running(python, PROGRAMS / program, output, *where, folders=folders):
            _works(target, peer, output, 0)
            for outages in range(1, OUTAGES + 1):
                proxy.refuse()
                proxy.strike("cut")
                _is_gone(target, peer)
                proxy.refuse(False)
                _works(target, peer, output, outages)
        _is_gone(target, peer)
    # None is lost in an outage; one whose acknowledgement is lost may come twice.
    readings = [int(payload) for payload in peer.payloads(b"shed/reading")]
    assert readings == sorted(readings)
    assert set(readings) == set(range(max(readings) + 1))
    assert len(readings) <= max(readings) + 1 + OUTAGES
    peer.client.disconnect()


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_after_the_move(python: str, target: broker.Broker, tmp_path: Path) -> None:
    _does_its_work("after.py", python, [BOARD], target, tmp_path / "output.txt")


if _NAMED:

    def test_before_the_move(target: broker.Broker, tmp_path: Path) -> None:
        folders = [BOARD, Path(str(_NAMED))]
        _does_its_work("before.py", "micropython", folders, target, tmp_path / "output.txt")

    def test_mqtt_as_has_the_names() -> None:
        """Those that the program uses, so that the tables above are true."""
        lines = (
            "import json, mqtt_as",
            "config = dict(mqtt_as.config)",
            "config.update(server='127.0.0.1', queue_len=1)",
            "made = mqtt_as.MQTTClient(config)",
            "print(json.dumps([dir(mqtt_as), list(config), dir(made)]))",
        )
        done = subprocess.run(
            [*interpreter_command("micropython", HEAP), "-c", "\n".join(lines)],
            env=interpreter.environment(BOARD, Path(str(_NAMED))),
            capture_output=True,
            text=True,
            check=True,
        )
        module, config, client = map(set, json.loads(done.stdout))
        assert module >= MODULE
        assert config >= CONFIG
        assert client >= METHODS | ATTRIBUTES


def test_the_program_before_the_move_uses_what_mqtt_as_has() -> None:
    tree = ast.parse((PROGRAMS / "before.py").read_text())
    imported, keys, used = set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "mqtt_as":
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "config":
            assert isinstance(node.slice, ast.Constant)
            keys.add(node.slice.value)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "client":
            used.add(node.attr)
    assert imported == MODULE
    assert keys == CONFIG
    assert used == METHODS | ATTRIBUTES


@pytest.mark.parametrize("program", ["before", "after"])
def test_a_program_compiles_for_a_board(program: str, tmp_path: Path) -> None:
    made = tmp_path / f"{program}.mpy"
    bytecode.compile_module(PROGRAMS / f"{program}.py", made, f"{program}.py")
    assert made.stat().st_size


def _code(program: str) -> list[str]:
    """Return the lines of a program without its docstring."""
    text = (PROGRAMS / f"{program}.py").read_text()
    return text[text.index("import asyncio") :].splitlines()


def test_the_page_shows_what_differs() -> None:
    _, _, *lines = difflib.unified_diff(_code("before"), _code("after"), n=2, lineterm="")
    shown = "\n".join("" if line.startswith("@@") else line.rstrip() for line in lines)
    (block,) = re.findall(r"```diff\n(.*?)\n```", PAGE, re.DOTALL)
    assert block == re.sub(r"\n{4,}", "\n\n\n", shown.strip("\n"))
