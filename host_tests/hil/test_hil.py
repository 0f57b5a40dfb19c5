"""`make test-board` from end to end, with a board that is emulated: all but the wire is real."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, bytecode, remote
from flatmq_tools.remote import Remote, RemoteError
from hil import suite
from hil.__main__ import NOT_RUN, UsageError, main, where
from hil.emulated_board import EmulatedBoard

SECRET = "se:cret w0rd"
MAIN = b"print('hello from main')\nwhile True: pass\n"
NETWORK_ROWS = 7


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("BOARD_PORT", "BOARD_WIFI", "BOARD_BROKER", "DESK_BROKER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def mosquitto() -> Iterator[broker.Broker]:
    with broker.mosquitto() as running:
        yield running


def _rows(document: str) -> dict[str, tuple[str, str]]:
    """Figure and mark of each row of a section on a board."""
    cells = [line.strip("| ").split(" | ") for line in document.splitlines() if line[:1] == "|"]
    return {row[0]: (row[1], row[2]) for row in cells[2:]}


def test_everything(
    tmp_path: Path,
    variables: pytest.MonkeyPatch,
    mosquitto: broker.Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a board that goes away at each reset, with a program of its own on it."""
    variables.setattr(suite, "KEEPALIVE", 1)
    document = tmp_path / "results.md"
    with (
        Proxy(mosquitto.host, mosquitto.port) as air,
        EmulatedBoard(tmp_path, air=air, wifi=("net", SECRET), unplugs=True) as board,
    ):
        with Remote(board.address) as desk:
            desk.enter()
            desk.write({"/main.py": MAIN})
        variables.setenv("BOARD_PORT", board.address)
        variables.setenv("BOARD_WIFI", f"net:{SECRET}")
        variables.setenv("BOARD_BROKER", f"{air.host}:{air.port}")
        variables.setenv("DESK_BROKER", mosquitto.address)
        status = main(["--results", str(document)])
        printed = capsys.readouterr().out
        assert status == 0, printed
        assert board.resets >= 4
        with Remote(board.address) as desk:
            desk.enter()
            (left,) = desk.run("import os; print(sorted(os.listdir('/')))")
            assert left == "['main.py']"
            assert not desk.different({"/main.py": MAIN})
    section = document.read_text()
    rows = _rows(section)
    assert len(rows) == 15
    assert {mark for _, mark in rows.values()} == {"ok"}
    assert "0 in 60 operations" in rows["bytes per operation, a scripted peer"][0]
    assert "0 in 10 operations" in rows["bytes per operation, a broker"][0]
    for qos in (0, 1, 2):
        assert "100 sent, 0 lost" in rows[f"out and back at QoS {qos}"][0]
    assert SECRET not in printed + section


# A board so slow that the broker has acknowledged everything by the end of each poll.
SLOW = """
from flatmq.spool import Spool
poll = Spool.poll
def settle(self, ms=0):
    poll(self, ms)
    while self.pending:
        poll(self, 1)
Spool.poll = settle
"""


def test_a_broker_that_acknowledges_within_a_poll(
    tmp_path: Path, mosquitto: broker.Broker
) -> None:
    """The burst ends with messages on the spool, and the board gives signs of life meanwhile."""
    path = f"import sys; sys.path.insert(0, {suite.HOME!r})"
    arguments = f"{mosquitto.host!r}, {mosquitto.port}, b'hil'"
    with EmulatedBoard(tmp_path) as board, Remote(board.address, patience=20) as desk:
        desk.enter()
        desk.write(suite.compiled())
        desk.run(f"{path}\n{SLOW}")
        heard: list[str] = []
        desk.run_until_reset(
            f"import board_network as b; b.spooled_burst({arguments}, 160)", heard.append
        )
        assert set(heard) == {"@alive"}
        (state,) = desk.run(f"{path}\nimport board_network as b; b.state()")
        acknowledged, accepted = map(int, state.split()[1:])
        assert accepted > acknowledged >= 80
        *_, drained = desk.run(f"b.drain({arguments})")
        assert int(drained.split()[1]) >= accepted - acknowledged


def test_what_fails_is_a_row(
    tmp_path: Path,
    variables: pytest.MonkeyPatch,
    mosquitto: broker.Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client that allocates, and a Wi-Fi with another password, which is not shown."""
    variables.setattr(suite, "SCRIPTED", ("publishing",))
    variables.setattr(suite, "JOIN_MS", 300)
    broken = {**suite.compiled(), **_allocating(tmp_path)}
    variables.setattr(suite, "compiled", lambda: broken)
    document = tmp_path / "results.md"
    with EmulatedBoard(tmp_path) as board:
        variables.setenv("BOARD_PORT", board.address)
        variables.setenv("BOARD_WIFI", "net:not the w0rd")
        variables.setenv("BOARD_BROKER", mosquitto.address)
        status = main(["--results", str(document)])
    printed = capsys.readouterr().out
    assert status == 1, printed
    section = document.read_text()
    rows = _rows(section)
    marks = [mark for _, mark in rows.values()]
    assert (marks.count("not run"), marks.count("FAILED")) == (NETWORK_ROWS, 2)
    assert "not joined" in rows["joining the network"][0]
    figure, mark = rows["bytes per operation, a scripted peer"]
    assert mark == "FAILED"
    assert "publishing.qos0: " in figure
    assert "heap lock refused" in figure
    assert "not the w0rd" not in printed + section


def test_a_board_without_a_network(
    tmp_path: Path,
    variables: pytest.MonkeyPatch,
    mosquitto: broker.Broker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    variables.setattr(suite, "SCRIPTED", ())
    document = tmp_path / "results.md"
    with EmulatedBoard(tmp_path, radio=False) as board:
        variables.setenv("BOARD_PORT", board.address)
        variables.setenv("BOARD_WIFI", "net:word")
        variables.setenv("BOARD_BROKER", mosquitto.address)
        assert main(["--results", str(document)]) == 0, capsys.readouterr().out
    rows = _rows(document.read_text())
    not_run = [figure for figure, mark in rows.values() if mark == "not run"]
    assert not_run == ["the board has no network"] * NETWORK_ROWS
    assert rows["free heap before import"][1] == "ok"


def test_without_a_network_its_rows_say_so() -> None:
    without = suite.Suite(where({"BOARD_PORT": "x"}), lambda text: None)
    without.with_network(None)
    assert [(row.figure, row.ok) for row in without.rows] == [
        ("BOARD_BROKER is not set", None)
    ] * NETWORK_ROWS


def _allocating(folder: Path) -> dict[str, bytes]:
    """A session whose publish makes a bytes object, as it would be on the board."""
    source = folder / "session.py"
    text = (bytecode.SOURCES / "session.py").read_text()
    begin = "        if self.end + n + 5 > self.limit and not self.make_room(n):"
    assert text.count(begin) == 1
    source.write_text(
        text.replace(begin, f"        payload = payload + b''.join([b'x'])\n{begin}")
    )
    target = folder / "session.mpy"
    bytecode.compile_module(source, target, source.name)
    return {f"{suite.HOME}/flatmq/session.mpy": target.read_bytes()}


def test_without_a_board_it_says_so(
    variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == NOT_RUN


def test_a_port_where_nothing_is(
    variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(RemoteError, match="cannot be opened"):
        Remote(f"socket://127.0.0.1:{port}").enter(patience=0)


def test_a_port_where_nothing_answers() -> None:
    """Something listens there, but no MicroPython."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(RemoteError, match="does not answer"):
            Remote(f"socket://127.0.0.1:{port}").enter(patience=0.2)


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


# A reset that is swallowed, or so slow that the Ctrl-C of the next connection comes before it.
SLOW_TO_RESET = [{"swallows": 1}, {"swallows": 2}, {"reset_ms": 800}]


@pytest.mark.parametrize("fault", SLOW_TO_RESET, ids=str)
def test_no_step_begins_before_the_reset(
    fault: dict[str, int],
    tmp_path: Path,
    variables: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A module that was loaded before is not measured again: the import takes memory."""
    variables.setattr(suite, "SCRIPTED", ())
    document = tmp_path / "results.md"
    with EmulatedBoard(tmp_path, **fault) as board:
        with Remote(board.address) as desk:
            desk.enter()
            desk.run("import sys\nclass Loaded: Client = print\nsys.modules['flatmq'] = Loaded")
        variables.setenv("BOARD_PORT", board.address)
        assert main(["--results", str(document)]) == 0, capsys.readouterr().out
        assert board.resets == 2  # before the first step, and after the last
    rows = _rows(document.read_text())
    taken = rows["free heap after `from flatmq import Client`"][0].partition("(")[2].split()[0]
    assert int(taken.replace(",", "")) > 4000


def test_a_board_that_is_never_reset(
    tmp_path: Path, variables: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with EmulatedBoard(tmp_path, swallows=100) as board:
        variables.setenv("BOARD_PORT", board.address)
        assert main([]) == 2
    printed = capsys.readouterr().out
    assert "the board was not reset in 3 tries" in printed
    assert "free heap" not in printed


def test_an_import_is_measured_once(tmp_path: Path) -> None:
    """With the client loaded it would seem to take nothing."""
    with EmulatedBoard(tmp_path) as board, Remote(board.address) as desk:
        desk.enter()
        desk.write(suite.compiled())
        for _ in range(2):
            desk.restart()
            desk.run(f"import sys; sys.path.insert(0, {suite.HOME!r})")
            assert desk.run("import board_memory; board_memory.measure()")
            with pytest.raises(RemoteError, match="flatmq is loaded already"):
                desk.run("board_memory.measure()")


def test_code_that_should_end_in_a_reset_and_does_not(tmp_path: Path) -> None:
    with EmulatedBoard(tmp_path, swallows=1) as board, Remote(board.address) as desk:
        desk.enter()
        with pytest.raises(RemoteError, match=r"ended without a reset: .*ZeroDivisionError"):
            desk.run_until_reset("1/0")
        desk.enter()
        told: list[str] = []
        code = "import machine\nprint('word')\nprint('@reset')\nmachine.reset()"
        with pytest.raises(RemoteError, match="ended without a reset"):
            desk.run_until_reset(code, told.append)
        assert told == ["word"]
        desk.enter()
        desk.run_until_reset(code)
        assert desk.run("print(1)") == ["1"]
        assert board.resets == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("BOARD_WIFI", "only-a-name-s3cret"), ("BOARD_BROKER", "no.such.host.invalid:1883")],
)
def test_variables_that_are_wrong(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=name) as raised:
        where({"BOARD_PORT": "x", name: value})
    assert "s3cret" not in str(raised.value)


def test_a_password_may_have_colons_and_the_broker_no_port() -> None:
    found = where({"BOARD_PORT": "x", "BOARD_WIFI": "a:b:c", "BOARD_BROKER": "127.0.0.1"})
    assert found.wifi == ("a", "b:c")
    assert found.broker == found.desk == ("127.0.0.1", 1883)
