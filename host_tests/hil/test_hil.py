"""The rig `board` from end to end, with a board that is emulated.

All but the wire is real.
"""

import socket
import threading
from pathlib import Path

import pytest

from flatmq_rigs import results
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, remote
from flatmq_tools.remote import Remote, RemoteError
from hil import suite
from hil.__main__ import main
from hil.emulated_board import EmulatedBoard

SECRET = "se:cret w0rd"
MAIN = b"print('hello from main')\nwhile True: pass\n"


def test_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a board that goes away at each reset, with a program of its own on it."""
    monkeypatch.delenv("EMULATE", raising=False)
    monkeypatch.setattr(suite, "KEEPALIVE", 1)
    document = tmp_path / "results.md"
    with (
        broker.mosquitto() as mosquitto,
        Proxy(mosquitto.host, mosquitto.port) as air,
        EmulatedBoard(tmp_path, air=air, wifi=("net", SECRET), unplugs=True) as board,
    ):
        with Remote(board.address) as desk:
            desk.enter()
            desk.write({"/main.py": MAIN})
        monkeypatch.setenv("BOARD_PORT", board.address)
        monkeypatch.setenv("BOARD_WIFI", f"net:{SECRET}")
        monkeypatch.setenv("BOARD_BROKER", f"{air.host}:{air.port}")
        monkeypatch.setenv("DESK_BROKER", mosquitto.address)
        status = main(["--results", str(document)])
        shown = capsys.readouterr().out + document.read_text()
        assert status == 0, shown
        assert board.resets >= 4
        with Remote(board.address) as desk:
            desk.enter()
            (left,) = desk.run("import os; print(sorted(os.listdir('/')))")
            assert left == "['main.py']"
            assert not desk.different({"/main.py": MAIN})
    assert SECRET not in shown
    (table,) = results.tables(document, "board")
    rows = {name: cells for name, *cells in results.rows(table)[1:]}
    assert len(rows) == 14
    assert {mark for _, mark in rows.values()} == {"ok"}
    assert "0 in 66 operations" in rows["bytes per operation, a scripted peer"][0]
    assert "0 in 10 operations" in rows["bytes per operation, a broker"][0]
    for qos in (0, 1, 2):
        assert "100 sent, 0 lost" in rows[f"out and back at QoS {qos}"][0]


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
