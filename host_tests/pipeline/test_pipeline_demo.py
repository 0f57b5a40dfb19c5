"""`make pipeline`: it says that all is well when it is, and only then."""

import copy
import io
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from flatmq_tools import broker
from flatmq_tools.fleet import compare, plan, truth
from flatmq_tools.pipeline.cli import pipeline as main
from flatmq_tools.pipeline.demo import Demo, Landed
from flatmq_tools.pipeline.processes import Command, command_line, environment

DEADLINE = 600  # seconds, of a machine that is busy


def started(folder: Path, *arguments: object) -> Command:
    """`flatmq pipeline demo folder/out`, whatever broker and master the environment names."""
    env = {**environment(), "COLUMNS": "200"}
    for name in ("BROKER", "SPARK_MASTER"):
        env.pop(name, None)
    return Command(folder / "demo.txt", "demo", folder / "out", *arguments, env=env)


@pytest.mark.proof
def test_everything_that_boards_send_is_in_the_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    demo = started(tmp_path, "--devices", 15, "--seconds", 5, "--seed", 4)
    demo.wait(DEADLINE)
    found = re.search(
        r"\nsent (\d+), landed (\d+); lost (\d+), found (\d+); "
        r"duplicated (\d+), found (\d+): they agree\n$",
        demo.words(),
    )
    assert found, demo.words()
    sent, landed, lost, lost_found, twice, twice_found = map(int, found.groups())
    assert sent == landed > 15 * 4
    assert (lost, twice) == (lost_found, twice_found)
    others = re.search(r"values of others +([\d,]+) +([\d,]+) ", demo.words())
    assert others and others[1] == others[2] and int(others[1].replace(",", "")) >= 20
    page = (out / "report.html").read_text()
    assert '"hall"' in page and "ENERGY/Power" in page
    boots = truth.read(out / "truth.jsonl")
    assert any("-mpy-" in boot.device for boot in boots)  # one of them is a real MicroPython
    assert sum(boot.published + len(boot.duplicated) for boot in boots) == sent
    assert json.loads((out / "progress.jsonl").read_text().splitlines()[0])["name"]


@pytest.mark.proof
def test_who_ends_it_ends_its_processes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    demo = started(tmp_path)
    try:
        demo.until(lambda: demo.find(f"run {out} --health-every"), DEADLINE)
        demo.process.terminate()
        assert demo.process.wait(DEADLINE) == 128 + signal.SIGTERM
        assert not any(str(out) in command_line(pid) for pid in psutil.pids())
    finally:
        demo.stop()


@pytest.mark.parametrize(
    ("out", "variables", "said"),
    [
        ("mine", {}, "Error: {0}/mine is there, and not of a demo"),
        ("file/out", {}, "Error: {0}/file/out cannot be written: Not a directory"),
        ("out", {"BROKER": "127.0.0.1:1"}, "Error: no broker answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line(
    out: str, variables: dict[str, str], said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    (tmp_path / "file").touch()
    monkeypatch.delenv("BROKER", raising=False)
    done = CliRunner().invoke(main, ["demo", str(tmp_path / out)], env=variables)
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith(said.format(tmp_path))
    assert os.listdir(tmp_path / "mine") == ["precious"]


def test_its_boards_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLATMQ_PASSWORD", "s3cret")
    monkeypatch.setattr("flatmq_tools.pipeline.demo.START", 60.0)
    demo = Demo(tmp_path, seconds=1, user="alice", console=Console(file=io.StringIO()))
    with broker.embedded(users={"alice": "s3cret"}) as target, demo._boards(target) as boards:
        ((board, name),) = boards.items()
        try:
            assert demo._boot_of(board, name).published == 3
        finally:
            board.stop()


BOOTS = [
    truth.Boot("a", 1, readings=6, published=5, acknowledged=5, lost=[3], duplicated=[4],
               ended=100.0),
    truth.Boot("b", 7, readings=2, published=2, acknowledged=2, end=plan.STUCK, ended=80.0),
]  # fmt: skip
GOOD = Landed(
    messages=8,
    readings=7,
    dead=0,
    seen={("a", 1): compare.Seen(5, 1, 1, 0), ("b", 7): compare.Seen(2, 0, 0, 0)},
    silent={"b"},
)


def verdict(landed: Landed, out: Path) -> tuple[int, str, str]:
    shown = io.StringIO()
    demo = Demo(out, console=Console(file=shown, width=120))
    return (*demo._verdict(BOOTS, landed, 100.0), shown.getvalue())


def test_tables_that_agree(tmp_path: Path) -> None:
    status, line, shown = verdict(GOOD, tmp_path)
    assert status == 0
    assert "sent 8, landed 8; lost 1, found 1; duplicated 1, found 1: they agree" in line
    assert "WRONG" not in shown
    rows = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    assert ["lost", "1", "1", "found in health"] in rows
    assert ["silent boards", "1", "1", "found in health"] in rows


def _seen(**fields: int) -> Callable[[Landed], None]:
    def change(landed: Landed) -> None:
        for name, value in fields.items():
            setattr(landed.seen["a", 1], name, value)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda landed: setattr(landed, "messages", 7),
        lambda landed: setattr(landed, "messages", 9),
        lambda landed: setattr(landed, "readings", 8),
        lambda landed: setattr(landed, "dead", 1),
        lambda landed: setattr(landed, "others", 1),
        lambda landed: setattr(landed, "silent", set()),
        lambda landed: setattr(landed, "silent", {"a", "b"}),
        lambda landed: landed.seen.pop(("b", 7)),
        lambda landed: landed.seen.update({("a", 2): compare.Seen(1)}),
        _seen(readings=4),
        _seen(duplicates=0),
        _seen(lost=0),
        _seen(reordered=1),
    ],
)
def test_tables_that_do_not(change: Callable[[Landed], None], tmp_path: Path) -> None:
    landed = copy.deepcopy(GOOD)
    change(landed)
    status, line, _ = verdict(landed, tmp_path)
    assert status == 1
    assert "THEY DISAGREE" in line
