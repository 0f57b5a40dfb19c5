"""The rigs `board` and `board-bench` from end to end, with a board that is emulated.

All but the wire is real.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flatmq_rigs import results
from flatmq_rigs.bench.peers import PeerError
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, remote
from flatmq_tools.remote import Remote, RemoteError
from hil import bench, suite
from hil.__main__ import main
from hil.emulated_board import EmulatedBoard

SECRET = "se:cret w0rd"
MAIN = b"print('hello from main')\nwhile True: pass\n"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("BOARD_PORT", "BOARD_WIFI", "BOARD_BROKER", "DESK_BROKER", "EMULATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bench, "ARRIVE_MS", 3)
    monkeypatch.setattr(suite, "KEEPALIVE", 1)
    return monkeypatch


@pytest.fixture
def mosquitto() -> Iterator[broker.Broker]:
    with broker.mosquitto() as running:
        yield running


class Run(NamedTuple):
    """A rig that has run: `shown` is what it printed and wrote, `rows` are by their first cell."""

    status: int
    shown: str
    rows: dict[str, list[str]]


@pytest.fixture
def run(
    tmp_path: Path, variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Run]:
    """Run a rig with these variables."""

    def go(*more: str, command: Callable[[list[str]], int] = main, **environment: str) -> Run:
        for name, value in environment.items():
            variables.setenv(name, value)
        document = tmp_path / "results.md"
        status = command(["--results", str(document), *more])
        shown = capsys.readouterr().out + document.read_text()
        (table,) = (tmp_path / results.TABLES).iterdir()
        return Run(status, shown, {name: cells for name, *cells in results.rows(table)[1:]})

    return go


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(main, id="test-board"),
        pytest.param(bench.main, id="bench-board", marks=pytest.mark.proof),
    ],
)
def test_everything(
    command: Callable[[list[str]], int],
    tmp_path: Path,
    mosquitto: broker.Broker,
    bench_build: Path,
    run: Callable[..., Run],
) -> None:
    """On a board that goes away at each reset, with a program of its own on it."""
    build = ["--build", str(bench_build)] if command is bench.main else []
    with (
        Proxy(mosquitto.host, mosquitto.port) as air,
        EmulatedBoard(tmp_path, air=air, wifi=("net", SECRET), unplugs=True) as board,
    ):
        with Remote(board.address) as desk:
            desk.enter()
            desk.write({"/main.py": MAIN})
        status, shown, rows = run(
            *build, command=command, BOARD_PORT=board.address, BOARD_WIFI=f"net:{SECRET}",
            BOARD_BROKER=f"{air.host}:{air.port}", DESK_BROKER=mosquitto.address,
        )  # fmt: skip
        assert status == 0, shown
        assert board.resets >= 4
        with Remote(board.address) as desk:
            desk.enter()
            (left,) = desk.run("import os; print(sorted(os.listdir('/')))")
            assert left == "['main.py']"
            assert not desk.different({"/main.py": MAIN})
    assert SECRET not in shown
    (_check_bench if command is bench.main else _check_tests)(rows)


def _check_tests(rows: dict[str, list[str]]) -> None:
    assert len(rows) == 14
    assert {mark for _, mark in rows.values()} == {"ok"}
    assert "0 in 66 operations" in rows["bytes per operation, a scripted peer"][0]
    assert "0 in 10 operations" in rows["bytes per operation, a broker"][0]
    for qos in (0, 1, 2):
        assert "100 sent, 0 lost" in rows[f"out and back at QoS {qos}"][0]


def _check_bench(rows: dict[str, list[str]]) -> None:
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


def test_without_a_broker_and_without_the_other_client(
    tmp_path: Path, variables: pytest.MonkeyPatch, run: Callable[..., Run]
) -> None:
    """Memory alone, and the reasons."""

    def missing(build: Path) -> Path:
        raise PeerError("no network here")

    variables.setattr(bench, "umqtt_simple", missing)
    with EmulatedBoard(tmp_path) as board:
        status, shown, rows = run(command=bench.main, BOARD_PORT=board.address)
    assert status == 0, shown
    assert "umqtt.simple was not measured: no network here." in shown
    assert "Times were not measured: BOARD_BROKER is not set." in shown
    assert rows[bench.STEPS["subscribed"]][0].endswith(" B")
    assert set(rows["idle poll, µs"]) == {"-"}


def test_a_port_where_no_board_answers() -> None:
    """Something listens there, but no MicroPython; and then nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"socket://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RemoteError, match="does not answer"):
            Remote(address).enter(patience=0.2)
    with pytest.raises(RemoteError, match="cannot be opened"):
        Remote(address).enter(patience=0)


def _answers_late(port: socket.socket) -> None:
    """A board that answers the first of two tries once both have come, and the other one later."""
    banner = b"raw REPL; CTRL-B to exit\r\n>"
    with port, port.accept()[0] as desk:
        asked = b""
        while asked.count(b"\r\1") < 2:
            asked += desk.recv(99)
        desk.sendall(banner)
        code = b""
        while more := desk.recv(99):
            if banner:
                desk.sendall(banner)
                banner = b""
            code += more
            if code.startswith(b"\5A\1"):
                code = code[3:]
                desk.sendall(b"R\0")
            if b"\4" in code:
                text, _, code = code.partition(b"\4")
                desk.sendall(b"OK" + text[7:-2] + b"\r\n\4\4>")


def test_a_late_answer_is_not_taken_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_FIRST_TRY", 0.1)
    port = socket.create_server(("127.0.0.1", 0))
    address = f"socket://127.0.0.1:{port.getsockname()[1]}"
    board = threading.Thread(target=_answers_late, args=(port,))
    board.start()
    with Remote(address) as desk:
        desk.enter()
        assert [desk.run(f"print('{n}')") for n in range(3)] == [["0"], ["1"], ["2"]]
    board.join()


@pytest.mark.parametrize("soft_reset", [False, True])
def test_a_board_that_boots_for_longer_than_a_try(
    soft_reset: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a board gets all tries at once.

    The answers to the first ones are not taken for later ones.
    """
    monkeypatch.setattr(remote, "_FIRST_TRY", 0.1)
    with EmulatedBoard(tmp_path, boots_ms=400) as board, Remote(board.address) as desk:
        for _ in range(1 if soft_reset else 2):
            desk.enter(soft_reset=soft_reset)
            for n in range(5):
                assert desk.run(f"print({n})") == [str(n)]
            desk.reset()
