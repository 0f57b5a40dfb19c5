"""The wheel as users install it: every command prints its help and runs once.

A sample of the tests takes what the wheel needs from the environment that they run in.
"""

import ast
import json
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
from conftest import ROOT
from flatmq_tools.broker import Broker
from flatmq_tools.cli import main
from observer import retain
from wheel.installed import PATIENCE, Installed

PIPELINE = sys.version_info >= (3, 11)
EXTRAS = "[boards,demo,emulate,pipeline]" if PIPELINE else "[boards,demo,emulate]"
BEFORE_3_11 = {"tomli"} if PIPELINE else set()
PACK = [{"bn": "pico/", "n": "boot", "v": 7}, {"n": "seq", "v": 1}, {"n": "temp", "v": 21.5}]


def _commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    yield above
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *above, name)
        else:
            yield (*above, name)


def _imported() -> set[str]:
    """Everything that a module of the wheel imports, also when it needs it only."""
    found: set[str] = set()
    sources = [ROOT / "tools" / "pyspark_mqtt.py", *(ROOT / "tools/flatmq_tools").rglob("*.py")]
    for source in sources:
        if not PIPELINE and "pipeline" in source.parts:
            continue
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
    # A sketch of the demonstration has what is beside it on a board.
    return found - {source.stem for source in (ROOT / "boards").rglob("*.py")}


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


# What is in it


def test_it_has_the_client_and_the_command_and_no_rig(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    info = f"flatmq-{flatmq.__version__}.dist-info"
    assert names == {"flatmq", "flatmq_tools", "pyspark_mqtt.py", info}


def test_it_has_every_file_of_the_command(wheel: Path) -> None:
    listed = ["git", "ls-files", "tools/flatmq_tools"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {f"tools/{name}" for name in zipfile.ZipFile(wheel).namelist()}
    assert set(files.splitlines()) <= there


def test_everything_that_it_imports_is_installed(everything: Installed) -> None:
    code = "import sys; from importlib.util import find_spec; print(*map(find_spec, sys.argv[1:]))"
    done = everything.run("python", "-I", "-c", code, *sorted(_imported() - BEFORE_3_11))
    assert " None" not in f" {done.stdout}"


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
        "said = click.testing.CliRunner().invoke(main, ['deploy', 'pico_w']).output\n"
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
    "emulate": (["emulate", "pico_w"], 1,
        "no firmware for pico_w: download RPI_PICO_W-[0-9]*.uf2"),
    "flash": (["flash", "pico_w", "{file}"], 1, "firmware.uf2: not a UF2 file: 700 bytes are no"),
    "deploy": (["deploy", "pico_w", "--port", "socket://127.0.0.1:1"], 1,
               "Error: socket://127.0.0.1:1: cannot be opened"),
}  # fmt: skip


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


def test_watch(everything: Installed, near: Broker) -> None:
    retain(near.host, near.port, "dev/pico/telemetry", json.dumps(PACK))
    assert "temp 21.5" in everything.flatmq("watch", near.address, "--packs", 1)


@pytest.mark.proof
@pytest.mark.skipif(not PIPELINE, reason="the pipeline needs Python 3.11")
def test_the_pipeline(everything: Installed, near: Broker, tmp_path: Path) -> None:
    """From a broker to a report, by the commands as a user types them."""
    retain(near.host, near.port, "dev/pico/telemetry", json.dumps(PACK))
    out = tmp_path / "out"
    ingest = ("pipeline", "ingest", near.address, out, "--every", "0.1")
    with everything.running(*ingest, "--filter", "dev/pico/telemetry") as process:
        typed_command.when(lambda: list((out / "raw" / "_delta_log").glob("*.json")), process)
        typed_command.interrupt(process)
    with everything.running("pipeline", "run", out, "--job", "measurements") as process:
        log = out / "measurements" / "_delta_log"
        rows = lambda: any('"add"' in commit.read_text() for commit in log.glob("*.json"))  # noqa: E731
        typed_command.when(rows, process)
        typed_command.interrupt(process)
    everything.flatmq("pipeline", "report", tmp_path, "--tables", out)
    assert "pico" in (tmp_path / "report.html").read_text(encoding="utf-8")
