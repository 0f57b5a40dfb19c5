"""`make bench-board` from end to end, with a board that is emulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatmq_rigs.bench.peers import PeerError
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker
from flatmq_tools.remote import Remote
from hil import bench
from hil.emulated_board import EmulatedBoard

SECRET = "se:cret w0rd"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("BOARD_PORT", "BOARD_WIFI", "BOARD_BROKER", "DESK_BROKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bench, "ARRIVE_MS", 3)
    return monkeypatch


def _rows(document: Path) -> dict[str, list[str]]:
    lines = [line for line in document.read_text().splitlines() if line.startswith("| ")]
    cells = [line.strip("| ").split(" | ") for line in lines[2:]]
    return {row[0]: row[1:] for row in cells}


def test_everything(
    tmp_path: Path,
    variables: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bench_build: Path,
) -> None:
    """Every figure of both clients, and nothing stays on the board."""
    document = tmp_path / "results.md"
    with (
        broker.mosquitto() as mosquitto,
        Proxy(mosquitto.host, mosquitto.port) as air,
        EmulatedBoard(tmp_path, air=air, wifi=("net", SECRET)) as board,
    ):
        variables.setenv("BOARD_PORT", board.address)
        variables.setenv("BOARD_WIFI", f"net:{SECRET}")
        variables.setenv("BOARD_BROKER", f"{air.host}:{air.port}")
        arguments = ["--results", str(document), "--build", str(bench_build)]
        status = bench.main(arguments)
        printed = capsys.readouterr().out
        assert status == 0, printed
        with Remote(board.address) as desk:
            desk.enter()
            assert desk.run("import os; print(os.listdir('/'))") == ["[]"]
    rows = _rows(document)
    assert len(rows) == len(bench.STEPS) + len(bench.OPERATIONS)
    for text in bench.STEPS.values():
        ours, _, theirs, *_ = rows[text]
        assert int(theirs.removesuffix(" B").replace(",", "")) > 0
        assert int(ours.removesuffix(" B").replace(",", "")) > 0
    for text in bench.OPERATIONS.values():
        ours, left, theirs, _, _ = rows[f"{text}, µs"]
        assert left == "0", text
        assert float(ours.replace(",", "")) >= 0
        assert float(theirs.replace(",", "")) >= 0
    for name in ("publish", "receive", "idle"):
        assert rows[f"{bench.OPERATIONS[name]}, µs"][4] != "-"
    assert SECRET not in printed + document.read_text()


def test_without_a_broker_and_without_the_other_client(
    tmp_path: Path, variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory alone, and the reasons."""

    def missing(build: Path) -> Path:
        raise PeerError("no network here")

    variables.setattr(bench, "_umqtt", missing)
    document = tmp_path / "results.md"
    with EmulatedBoard(tmp_path) as board:
        variables.setenv("BOARD_PORT", board.address)
        assert bench.main(["--results", str(document)]) == 0, capsys.readouterr().out
    written = document.read_text()
    assert "umqtt.simple was not measured: no network here." in written
    assert "Times were not measured: BOARD_BROKER is not set." in written
    rows = _rows(document)
    assert rows[bench.STEPS["subscribed"]][0].endswith(" B")
    assert set(rows["idle poll, µs"]) == {"-"}


def test_without_a_board_it_says_so(
    variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main([]) == 0
    assert capsys.readouterr().out.strip() == bench.NOT_RUN
