"""The programs of docs/asyncio.md do at a real broker what the page says.

Of its program for mqtt_as, the same one moved to flatmq runs, on both interpreters.
"""

import difflib
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import HERE, PYTHONS, ROOT, interpreter_command, library
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, interpreter
from observer import Observer, retained
from side_by_side import side_by_side

PROGRAMS = Path(__file__).parent / "programs"
BOARD = HERE / "sketches" / "fakes"  # what a board has and the desk lacks: a radio
PAGE = (ROOT / "docs" / "asyncio.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HEAP = "192k"  # of MicroPython, for a program, what it imports, and the compiler
OUTAGES = 3


@contextmanager
def running(
    python: str, program: Path, output: Path, *arguments: str, folders: Sequence[Path] = ()
) -> Iterator[None]:
    """Run a program during the block, at whose end it must still be there, and kill it.

    What it prints goes to `output`. It imports from `folders`, then flatmq.
    """
    command = interpreter_command(python, HEAP)
    if python == "cpython":
        command.append("-u")
    with output.open("w") as written:
        process = subprocess.Popen(
            [*command, str(program), *arguments],
            env=interpreter.environment(*folders, library(python)),
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def target() -> Iterator[broker.Broker]:
    with broker.mosquitto() as made:
        yield made


@pytest.mark.parametrize("python", PYTHONS)
def test_the_example_answers(python: str, target: broker.Broker, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    assert '"192.168.1.10"' in EXAMPLE
    program.write_text(EXAMPLE.replace('"192.168.1.10"', f'"{target.host}", {target.port}'))
    with (
        Observer(target.host, target.port) as peer,
        running(python, program, tmp_path / "output.txt"),
    ):
        peer.until(lambda: b"online" in peer.payloads("dev/pico-1/status"))
        # It may not have subscribed yet.
        peer.until(
            lambda: b"hello yourself" in peer.payloads("dev/pico-1/answer"),
            lambda: peer.send("dev/pico-1/cmd", b"hello"),
        )


def _works(target: broker.Broker, peer: Observer, output: Path, outages: int) -> None:
    """Check that the program is online after so many outages, and answers."""
    statuses = [b"online", *[b"offline", b"online"] * outages]
    peer.until(lambda: len(peer.payloads("shed/status")) >= len(statuses))
    assert peer.payloads("shed/status") == statuses
    assert retained(target.host, target.port, "shed/status") == b"online"
    assert output.read_text().count("lost") == outages
    command = b"command %d" % outages
    peer.publish("shed/command", command)
    peer.until(lambda: command in peer.payloads("shed/answer"))
    assert f"b'shed/command' {command!r} False" in output.read_text()
    count = len(peer.payloads("shed/reading"))
    peer.until(lambda: len(peer.payloads("shed/reading")) >= count + 2)


def _is_gone(target: broker.Broker, peer: Observer) -> None:
    """Check that the broker publishes the will."""
    peer.until(lambda: peer.payloads("shed/status")[-1] == b"offline")
    assert retained(target.host, target.port, "shed/status") == b"offline"


def _does_its_work(python: str, output: Path) -> None:
    with (
        broker.mosquitto() as target,
        Observer(target.host, target.port) as peer,
        Proxy(target.host, target.port) as proxy,
    ):
        where = proxy.host, str(proxy.port)
        with running(python, PROGRAMS / "after.py", output, *where, folders=[BOARD]):
            _works(target, peer, output, 0)
            for outages in range(1, OUTAGES + 1):
                proxy.refuse()
                proxy.strike("cut")
                _is_gone(target, peer)
                proxy.refuse(False)
                _works(target, peer, output, outages)
        _is_gone(target, peer)
    # None is lost in an outage; one whose acknowledgement is lost may come twice.
    readings = [int(payload) for payload in peer.payloads("shed/reading")]
    assert readings == sorted(readings)
    assert set(readings) == set(range(max(readings) + 1))
    assert len(readings) <= max(readings) + 1 + OUTAGES


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    folder = tmp_path_factory.mktemp("programs")
    library("micropython")  # compiled before the threads need it

    def run(python: str) -> None:
        _does_its_work(python, folder / f"{python}.txt")

    with side_by_side(request, test_it_does_its_work, run) as futures:
        yield futures


@pytest.mark.parametrize("case", PYTHONS)
def test_it_does_its_work(case: str, runs: dict[str, Future[None]]) -> None:
    runs[case].result()


def _code(program: str) -> list[str]:
    """Return the lines of a program without its docstring."""
    text = (PROGRAMS / f"{program}.py").read_text()
    return text[text.index("import asyncio") :].splitlines()


def test_the_page_shows_what_differs() -> None:
    _, _, *lines = difflib.unified_diff(_code("before"), _code("after"), n=2, lineterm="")
    shown = "\n".join("" if line.startswith("@@") else line.rstrip() for line in lines)
    (block,) = re.findall(r"```diff\n(.*?)\n```", PAGE, re.DOTALL)
    assert block == re.sub(r"\n{4,}", "\n\n\n", shown.strip("\n"))
