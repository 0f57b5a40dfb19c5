"""The wheel as users install it: every command prints its help and runs once.

A sample of the tests takes what the wheel needs from the environment that they run in.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import flatmq
import sizes
import typed_command
from conftest import ROOT, SharedBrokers
from flatmq import Client
from flatmq_rigs.links import Listening
from flatmq_tools.broker import Broker
from flatmq_tools.cli import main
from wheel.installed import PATIENCE, Installed

PIPELINE = sys.version_info >= (3, 11)
EXTRAS = "[boards,demo,pipeline]" if PIPELINE else "[boards,demo]"
PACK = [{"bn": "pico/", "n": "boot", "v": 7}, {"n": "seq", "v": 1}, {"n": "temp", "v": 21.5}]


def _commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *above, name)
        else:
            yield (*above, name)


COMMANDS = [words for words in _commands(main) if PIPELINE or "pipeline" not in words]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("flatmq-*.whl")
    return wheel


@pytest.fixture(scope="session")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("everything")
    return Installed(folder, wheel, EXTRAS, shares=not sizes.whole())


@pytest.fixture(scope="session")
def nothing(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The client alone."""
    return Installed(tmp_path_factory.mktemp("nothing"), wheel, "")


@pytest.fixture
def broker(shared_brokers: SharedBrokers) -> Broker:
    return shared_brokers.get("mosquitto", "shared")


def _publish(broker: Broker, topic: str) -> None:
    client = Client(b"wheel", broker.host, broker.port)
    client.connect(10_000)
    client.publish(topic.encode(), json.dumps(PACK).encode(), qos=1, retain=True)
    assert client.wait(10_000)
    client.disconnect()


# What is in it


def test_it_has_the_client_and_the_command_and_no_rig(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    info = f"flatmq-{flatmq.__version__}.dist-info"
    assert names == {"flatmq", "flatmq_tools", "pyspark_mqtt.py", info}


def test_the_client_needs_nothing(nothing: Installed) -> None:
    code = "import flatmq, importlib.metadata as m; print(flatmq.__file__, m.version('flatmq'))"
    file, version = nothing.python(code).split()
    assert "site-packages" in file
    assert version == flatmq.__version__


def test_without_an_extra_the_command_names_it(nothing: Installed, everything: Installed) -> None:
    assert nothing.refused() == "Error: the module click is missing: pip install 'flatmq[tools]'"
    everything.python(
        "import sys, click.testing; sys.modules['mpremote'] = None\n"
        "from flatmq_tools.cli import main\n"
        "said = click.testing.CliRunner().invoke(main, ['flash', 'pico_w', 'x.uf2']).output\n"
        "assert said.endswith(\"mpremote is missing: pip install 'flatmq[boards]'\\n\"), said"
    )


# Every command


@pytest.mark.parametrize("words", sizes.sample(COMMANDS, 3), ids=" ".join)
def test_help(words: tuple[str, ...], everything: Installed) -> None:
    said = everything.flatmq(*words, "--help")
    assert said.startswith(f"Usage: {' '.join(['flatmq', *words])} ")


# Commands that need nothing beside them: a part of what they print, or of the error they end with.
ALONE: dict[str, tuple[list[str], int, str]] = {
    "version": (["--version"], 0, f"flatmq, version {flatmq.__version__}\n"),
    "demo": (["demo", "--readings", "3"], 0, "every message arrived"),
    "boards": (["boards"], 0, "Raspberry Pi Pico 2 W"),
    "image": (["image", "pico_w", "--set", "wifi.ssid=home"], 0, "for Raspberry Pi Pico W"),
    "flash": (["flash", "pico_w", "{file}"], 1, "firmware.uf2: not a UF2 file: 700 bytes are no"),
    "deploy": (
        ["deploy", "pico_w", "--port", "socket://127.0.0.1:1"],
        1,
        "Error: socket://127.0.0.1:1: cannot be opened",
    ),
}


@pytest.mark.parametrize("command", sizes.sample(ALONE, 3))
def test_a_command_alone(command: str, everything: Installed, tmp_path: Path) -> None:
    file = tmp_path / "firmware.uf2"
    file.write_bytes(b"x" * 700)
    words, status, text = ALONE[command]
    words = [word.format(file=file) for word in words]
    said = everything.refused(*words) if status else everything.flatmq(*words)
    assert text in said
    if command == "image":
        made = everything.folder / "build" / "pico_w-filesystem.uf2"
        assert made.stat().st_size > 100_000


@pytest.mark.proof
def test_logs(everything: Installed) -> None:
    with (
        typed_command.serial_line() as (board, port),
        everything.running("logs", "--port", port) as process,
    ):
        typed_command.until("Ctrl-C ends it", process)
        os.write(board, b"hello\r\n")
        typed_command.until("hello", process)
        typed_command.interrupt(process)


@pytest.mark.proof
def test_bridge(everything: Installed, broker: Broker) -> None:
    with (
        typed_command.serial_line() as (board, port),
        everything.running("bridge", port, broker.address) as process,
    ):
        os.read(board, 1)  # the bridge has opened the line
        os.write(board, b"hello\r\n")
        typed_command.until("board | hello", process)
        typed_command.interrupt(process)


def test_watch(everything: Installed, broker: Broker) -> None:
    _publish(broker, "dev/pico/telemetry")
    assert "temp 21.5" in everything.flatmq("watch", broker.address, "--packs", 1)


@pytest.mark.proof
def test_fleet(everything: Installed, broker: Broker) -> None:
    everything.flatmq("fleet", broker.address, "--devices", 3, "--seconds", 1, "--calm")


@pytest.mark.proof
def test_tls(everything: Installed) -> None:
    with Listening("tls") as link:
        said = everything.flatmq("tls", f"localhost:{link.port}", "--ca", link.ca)
    assert "names      localhost, 127.0.0.1" in said


@pytest.fixture(scope="session")
def landed(everything: Installed, shared_brokers: SharedBrokers, tmp_path_factory) -> Path:
    """A folder in which `pipeline ingest` has landed a message."""
    broker = shared_brokers.get("mosquitto", "shared")
    _publish(broker, "dev/pico/telemetry")
    folder: Path = tmp_path_factory.mktemp("landed")
    command = ("pipeline", "ingest", broker.address, folder, "--every", "0.1")
    with everything.running(*command, "--filter", "dev/pico/telemetry") as process:
        typed_command.when(lambda: list(folder.rglob("*.parquet")), process)
        typed_command.interrupt(process)
    return folder


@pytest.fixture(scope="session")
def tables(everything: Installed, landed: Path, tmp_path_factory) -> Path:
    """The tables that `pipeline run` has made of that message."""
    out: Path = tmp_path_factory.mktemp("run") / "out"
    command = ("pipeline", "run", out, "--landed", landed, "--delta")
    with everything.running(*command, "--job", "raw", "--job", "measurements") as process:
        log = out / "delta" / "measurements" / "_delta_log"
        # The first commit has the row or not: that depends on which of the two jobs is faster.
        rows = lambda: any('"add"' in commit.read_text() for commit in log.glob("*.json"))  # noqa: E731
        typed_command.when(rows, process)
        typed_command.interrupt(process)
    return out


@pytest.mark.proof
@pytest.mark.skipif(not PIPELINE, reason="the pipeline needs Python 3.11")
class TestPipeline:
    """From a broker to a report, by the commands as a user types them."""

    def test_map(self, everything: Installed) -> None:
        assert "zigbee2mqtt" in everything.flatmq("pipeline", "map", "--list")

    def test_compact(self, everything: Installed, tables: Path) -> None:
        everything.flatmq("pipeline", "compact", tables / "delta")

    def test_report(self, everything: Installed, tables: Path, tmp_path: Path) -> None:
        everything.flatmq("pipeline", "report", tmp_path, "--tables", tables)
        assert "pico" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_forget(self, everything: Installed, tables: Path, tmp_path: Path) -> None:
        shutil.copytree(tables, tmp_path / "out")
        command = ("flatmq", "pipeline", "forget", "pico", tmp_path / "out")
        assert re.search(r"delta/measurements\W+1\b", everything.run(*command).stdout)
        assert everything.run(*command, status=1).stdout.startswith("pico is nowhere in ")

    def test_demo(self, everything: Installed, tmp_path: Path) -> None:
        (tmp_path / "mine").touch()
        said = everything.refused("pipeline", "demo", tmp_path)
        assert said.endswith("is there, and not of a demo: name another folder")


def test_every_command_is_run_here() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")} | set(
        ALONE
    )
    chained = {"ingest", "run"}  # by the fixtures
    for words in COMMANDS:
        if words[:1] == ("pipeline",) and len(words) == 2:
            assert words[1] in chained or hasattr(TestPipeline, f"test_{words[1]}"), words
        elif words and words != ("pipeline",):
            assert words[0] in tests, words
