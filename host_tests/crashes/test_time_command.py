"""`flatmq time` answers boards, which are programs on both interpreters."""

import errno
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import typed_command
from conftest import ROOT, interpreter_command, library, printed
from flatmq_tools import broker, timing
from flatmq_tools.desk_client import Desk
from flatmq_tools.interpreter import environment
from observer import Observer

DEADLINE = 60
BOARD = """
import time
from flatmq import Client
from flatmq.timesync import TimeSync

began = []
client = Client(b"clock", "{host}", {port})
sync = TimeSync(client, b"dev/clock/time", limit_ms=60000, set=began.append)
client.start()
end = time.time() + {deadline}
while not began and time.time() < end:
    client.poll(5)
    sync.poll()
print(began[0], sync.took)
"""


@pytest.fixture
def shown(running: broker.Broker) -> Iterator[io.StringIO]:
    """The command at work, and what it prints."""
    text = io.StringIO()
    with typed_command.at_work(timing.main, Desk(running), None, Console(file=text)):
        yield text


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_a_board_has_the_time(python: str, running: broker.Broker, shown: io.StringIO) -> None:
    program = BOARD.format(host=running.host, port=running.port, deadline=DEADLINE)
    before = time.time()
    folders = [library(python)]
    said = printed(python, "128k", "-c", program, folders=folders, timeout=2 * DEADLINE)
    second, took = map(int, said.split())
    assert before - 1 <= second - took / 2000 <= time.time() + 1
    assert shown.getvalue() == "clock asks for the time\n"


def test_the_program_of_the_page_sets_the_clock(
    running: broker.Broker, shown: io.StringIO, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "crashes.md").read_text("utf-8")
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[2]
    program = program.replace('"192.168.1.10"', f'"{running.host}", {running.port}')
    (tmp_path / "greenhouse.py").write_text(program.replace("range(500)", "range(5000)"))
    fakes = Path(__file__).parents[1] / "sketches" / "fakes"
    with typed_command.running(
        [*interpreter_command("micropython", "128k"), "greenhouse.py"],
        tmp_path,
        environment(library("micropython"), fakes),
    ) as board:
        typed_command.until("@clock 20", board)


@pytest.mark.parametrize("payload", [b"", b"x", b"12345678901", b"-1"])
def test_what_is_no_request_is_not_answered(
    payload: bytes, running: broker.Broker, shown: io.StringIO
) -> None:
    with Observer(running.host, running.port, "dev/odd/time") as seen:
        seen.until(
            lambda: seen.payloads("dev/odd/time"),
            lambda: (seen.send("dev/odd/time/get", payload), seen.send("dev/odd/time/get", "7")),
        )
        assert all(answer.startswith(b"7 ") for answer in seen.payloads("dev/odd/time"))


def test_a_full_disk_that_its_output_goes_to_stops_no_answer(running: broker.Broker) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "no space")

    with (
        typed_command.at_work(timing.main, Desk(running), None, Console(file=Full())),
        Observer(running.host, running.port, "dev/full/time") as seen,
    ):
        seen.until(
            lambda: seen.payloads("dev/full/time"), lambda: seen.send("dev/full/time/get", "7")
        )
