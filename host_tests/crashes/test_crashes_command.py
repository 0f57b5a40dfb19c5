"""`flatmq crashes`, and the program of docs/crashes.md."""

import io
import json
import re
import subprocess
import time
from pathlib import Path

import typed_command
from conftest import ROOT, interpreter_command, library, ran
from flatmq_tools import broker, crashes, remote_logs
from flatmq_tools.desk_client import Desk
from flatmq_tools.interpreter import environment
from observer import retain, retained

HERE = Path(__file__).parent
PAGE = (ROOT / "docs" / "crashes.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DEADLINE = 60


def _publish(running: broker.Broker, name: str, payload: str | bytes) -> None:
    retain(running.host, running.port, f"dev/{name}/crash", payload)


def _crashes(running: broker.Broker, *words: str) -> str:
    return typed_command.said("crashes", running.address, *words)


def _here(program: str, running: broker.Broker) -> str:
    """Return a program of the page with the address of the broker."""
    assert program.count('"192.168.1.10"') == 1
    return program.replace('"192.168.1.10"', f'"{running.host}", {running.port}')


def test_no_number_of_one_board_hides_the_crashes_of_others() -> None:
    for number in (b"1" + b"0" * 400, b"NaN", b"-Infinity", b"-1e308"):
        crash = crashes.read(b'{"cause":"x","time":%s,"uptime":"%s"}' % (number, number))
        assert crashes.table({"pico": crash}).row_count == 1


def test_the_page_keeps_its_word(running: broker.Broker, tmp_path: Path) -> None:
    """Its program crashes twice on MicroPython; after that its command shows what it says."""
    program = PROGRAMS[0]
    program = _here(program, running).replace("Every(1000)", "Every(1)")
    (tmp_path / "greenhouse.py").write_text(program.replace("guard(main)", "guard(main, 0)"))
    for _ in range(2):
        assert retained(running.host, running.port, "dev/greenhouse/crash") is None
        done = ran(
            [*interpreter_command("micropython", "128k"), "greenhouse.py"],
            cwd=tmp_path,
            env=environment(library("micropython")),
            timeout=DEADLINE,
        )
        assert done.returncode == 1, done.stderr
        assert "IndexError" in done.stdout
    (shown,) = re.findall(r"```\n(greenhouse:\n.*?)```", PAGE, re.DOTALL)
    printed = _crashes(running, "greenhouse")
    assert shown in printed
    assert re.search(
        r"greenhouse +\d+ s ago +greenhouse 1\.4 .* 1 +IndexError: pop from empty", printed
    )
    _crashes(running, "greenhouse", "--clear")
    assert retained(running.host, running.port, "dev/greenhouse/crash") is None
    assert "no crash of greenhouse" in _crashes(running, "greenhouse")


def test_what_the_second_program_prints_is_shown(running: broker.Broker, tmp_path: Path) -> None:
    """Only while somebody listens, and from what was printed before."""
    terminal = "import bench, flatmq.log\nflatmq.log.os = bench.Terminal()\n"
    (tmp_path / "greenhouse.py").write_text(terminal + _here(PROGRAMS[1], running))
    out = io.StringIO()

    def printed() -> bool:
        return out.getvalue().count("\n") > 80

    with subprocess.Popen(
        [*interpreter_command("micropython", "128k"), "greenhouse.py"],
        cwd=tmp_path,
        env=environment(library("micropython"), HERE.parent / "sketches" / "fakes"),
        stdout=subprocess.DEVNULL,
    ) as board:
        remote_logs.main(Desk(running), "greenhouse", DEADLINE, out, printed)
        board.kill()
    shown = out.getvalue()
    first = int(shown.split("\n")[1].removeprefix("turn "))
    assert f"turn {first}\nturn {first + 1}\n" in shown
    assert "missing" not in shown


def test_a_table_of_all_boards(running: broker.Broker) -> None:
    record = {
        "cause": "exception", "trace": "Traceback:\n  File 1\nValueError: x", "version": "1.4",
        "uptime": 7300, "heap": 51200, "count": 3, "time": time.time() - 3 * 86400,
    }  # fmt: skip
    _publish(running, "a", json.dumps(record).encode())
    _publish(running, "b", b'{"cause":"watchdog"}')
    printed = _crashes(running)
    assert re.search(r"\ba +3 d ago +1\.4 +2 h +51200 +3 +ValueError: x", printed)
    assert re.search(r"\bb +watchdog", printed)
    assert "File 1" not in printed
    assert "a:\nTraceback:\n  File 1\nValueError: x\n" in _crashes(running, "a")
    assert "watchdog" not in _crashes(running, "a")


def test_what_is_no_record_is_shown_as_that(running: broker.Broker) -> None:
    odd = [b"\xff\0", b"[1]", b"[" * 900, b'{"trace": 1, "uptime": {}, "time": "x"}', b"7"]
    for n, payload in enumerate(odd):
        _publish(running, f"odd{n}", payload)
    printed = _crashes(running)
    assert printed.count("not a record of a crash") == len(odd) - 1
    for n in range(len(odd)):
        assert f"odd{n}" in printed


def test_a_record_moves_no_cursor(running: broker.Broker) -> None:
    _publish(
        running, "c", json.dumps({"trace": "x\x1b[2J\rValueError", "version": "\x07"}).encode()
    )
    assert not re.search(r"[\x1b\r\x07]", _crashes(running, "c"))


def test_a_board_must_be_named_to_be_cleared(running: broker.Broker) -> None:
    for words in (["--clear"], ["+", "--clear"], ["a/b"]):
        done = typed_command.flatmq("crashes", running.address, *words)
        assert done.exit_code == 2, words
