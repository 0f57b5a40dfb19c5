"""`flatmq bridge` as a user starts it, and ports that are no terminals."""

import io
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, STDOUT
from typing import Any
from unittest import mock

import pytest
import serial.rfc2217
from click.testing import CliRunner
from rich.console import Console

import typed_command
from conftest import SharedBrokers
from flatmq.frames import ACK, BEGIN, CLOSE, DATA, OPEN, SMALL, Decoder
from flatmq_tools import logs, remote
from flatmq_tools.address import address
from flatmq_tools.bridge import pump, readable
from flatmq_tools.bridge.line import Line
from flatmq_tools.broker import Broker
from flatmq_tools.cli import main as cli
from observer import until
from uart.ptys import Bridge
from uart.test_conversation import HELLO, frame
from uart.test_frames_on_a_line import decoded

CONNECT = b"\x10\x1b\0\4MQTT\4\xc2\0\0\0\1x\0\4user\0\6secret"
SECONDS = 30.0


class Board:
    """Frames, at the other end of a file descriptor."""

    def __init__(self, end: int) -> None:
        self.end = end
        self._decoder = Decoder()
        self._frames: list[tuple[bytes, bytes]] = []

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.end, data) :]

    def hear(self, kind: int) -> bytes:
        """The payload of the next frame of that kind."""
        return self._next(kind)[1]

    def hear_from(self, kind: int) -> int:
        """The connection number of the next frame of that kind."""
        head = self._next(kind)[0]
        return head[1] << 8 | head[2]

    def _next(self, kind: int) -> tuple[bytes, bytes]:
        while True:
            while self._frames:
                head, payload = self._frames.pop(0)
                if head[0] - SMALL == kind:
                    return head, payload
            data = os.read(self.end, 4096)
            assert data, "the line was closed"
            self._frames += decoded(data, self._decoder)


def run(*words: str, **more: Any) -> subprocess.Popen[Any]:
    """Start a command; what it prints is text in a pipe unless `more` says otherwise."""
    more = {"stdout": PIPE, "stderr": STDOUT, "text": True, **more}
    return subprocess.Popen([sys.executable, "-m", "flatmq_tools.cli", *words], **more)


def output(process: subprocess.Popen[Any]) -> str:
    """Return what a command has printed, once it has ended."""
    try:
        return str(process.communicate(timeout=SECONDS)[0])
    finally:
        process.kill()


@contextmanager
def terminal() -> Iterator[tuple[Board, str]]:
    with typed_command.serial_line() as (end, name):
        yield Board(end), name


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_bridges_shows_what_is_printed_and_ends(how: signal.Signals, near: Broker) -> None:
    with terminal() as (board, port):
        process = run("bridge", port, near.address)
        board.hear(BEGIN)
        board.send(b"booting \x1b[31m\r\n" + frame(OPEN, 7, HELLO))
        board.hear(OPEN)
        # What is left of a frame that lost its first byte has a password in it.
        board.send(frame(DATA, 7, CONNECT)[1:] + b"\r\n" + frame(DATA, 7, CONNECT))
        assert board.hear(DATA)[:1] == b"\x20"
        process.send_signal(how)
        board.hear(CLOSE)
        said = output(process)
    assert process.returncode == 0, said
    assert "board | booting \ufffd[31m\n" in said
    assert f"connected to {near.address}" in said
    assert "1 connections, 0 lost" in said
    assert "secret" not in said


def test_a_terminal_shows_the_state(near: Broker) -> None:
    with terminal() as (board, port), terminal() as (screen, name):
        with open(name, "r+b", buffering=0) as console:
            more = {"stdin": console, "stdout": console, "stderr": console}
            wide = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
            process = run("bridge", port, near.address, env=wide, **more)
        board.hear(BEGIN)
        board.send(frame(OPEN, 7, HELLO))
        shown = b""
        while b"connected \xc2\xb7 up 0 B" not in shown:
            shown += os.read(screen.end, 4096)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            if select.select([screen.end], [], [], 0.05)[0]:
                os.read(screen.end, 4096)
    assert process.returncode == 0


@pytest.mark.parametrize("wrong", ["", ":1883", "host:", "host:0", "host:70000", "host:mqtt"])
def test_a_broker_has_to_be_named(wrong: str) -> None:
    done = CliRunner().invoke(cli, ["bridge", "/dev/null", wrong])
    assert done.exit_code == 1
    assert done.output.startswith("Error: the broker must be HOST")
    assert done.output.count("\n") == 1


def test_a_port_that_is_not_there_ends_it() -> None:
    process = run("bridge", "/dev/absent", "127.0.0.1")
    said = output(process)
    assert process.returncode == 1
    assert said.startswith("Error: could not open port /dev/absent: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("command", ["logs", "bridge"])
def test_a_reader_that_has_gone_ends_it(command: str) -> None:
    with terminal() as (board, port):
        words = ["logs", "--port", port] if command == "logs" else ["bridge", port, "127.0.0.1"]
        process = run(*words, stderr=subprocess.DEVNULL)
        assert process.stdout
        try:
            while not select.select([process.stdout], [], [], 0.1)[0]:
                board.send(b"booting\n")
            process.stdout.close()
            board.send(b"and on\n")
            status = process.wait(SECONDS)
        finally:
            process.kill()
    assert status == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_that_its_output_goes_to_stops_no_bytes(near: Broker) -> None:
    with terminal() as (board, port), open("/dev/full", "wb") as full:
        process = run("bridge", port, near.address, stdout=full, stderr=full)
        try:
            for sent, kind in (
                (b"", BEGIN),
                (b"booting\n" + frame(OPEN, 7, HELLO), OPEN),
                (frame(DATA, 7, CONNECT), DATA),
            ):
                board.send(sent)
                while not select.select([board.end], [], [], 0.1)[0]:
                    assert process.poll() is None
                board.hear(kind)
        finally:
            process.kill()
            process.wait()


class _Bad(Exception):
    """As termios.error, which is no OSError."""


def test_whatever_a_port_raises_while_it_comes_back_it_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal() as (board, port):
        tries: list[float] = []
        out = io.BytesIO()

        def opened(address: str) -> serial.SerialBase:
            tries.append(time.monotonic())
            if len(tries) in (2, 3):
                raise (_Bad, TypeError)[len(tries) - 2]
            line = serial.Serial(address, timeout=0.05)
            if len(tries) == 1:
                monkeypatch.setattr(line, "read", mock.Mock(side_effect=TypeError))
            return line

        monkeypatch.setattr(logs, "_opened", opened)
        with typed_command.at_work(lambda over: logs.main(port, out, Console(quiet=True), over)):
            until("it is back", lambda: len(tries) == 4)
            board.send(b"booting\n")
            until("the text", out.getvalue)


def test_a_board_that_comes_back_is_entered_whatever_its_port_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = mock.Mock()
    line.enter_raw_repl.side_effect = [OSError, None]
    made = mock.Mock(side_effect=[line, _Bad, TypeError, line])
    monkeypatch.setattr(remote, "_Transport", made)
    remote.Remote("/dev/any").enter(patience=5.0)
    assert made.call_count == 4
    made.side_effect = _Bad
    with pytest.raises(remote.RemoteError, match="cannot be opened"):
        remote.Remote("/dev/any").enter(patience=0.1)


def test_a_port_that_closes_at_once_is_not_tried_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pump, "RETRY", 0.4)
    tries: list[float] = []

    class Gone:
        def __init__(self, *_: object) -> None:
            tries.append(time.monotonic())
            if len(tries) == 3:
                raise _Bad

        def read(self, _: int) -> bytes:
            raise _Bad

        def __getattr__(self, _: str) -> object:
            return lambda *_: None

    monkeypatch.setattr(serial, "serial_for_url", lambda *_, **__: Gone())
    bridge = Bridge("/dev/any", mock.Mock(host="127.0.0.1", port=1))
    try:
        until("tries", lambda: len(tries) > 4)
    finally:
        bridge.stop()
    assert tries[4] - tries[0] > 1.2  # four pauses of 0.4, each a little later than due


def test_addresses() -> None:
    assert address("h") == ("h", 1883)
    assert address("h", tls=True) == ("h", 8883)
    assert address("10.0.0.1:99") == ("10.0.0.1", 99)
    assert address("[::1]:99") == ("::1", 99)
    assert address("[::1]") == address("::1") == ("::1", 1883)


def test_what_commands_a_terminal_is_not_shown() -> None:
    assert readable("a\tb\x1b]0;x\x07\u202e") == "a    b\ufffd]0;x\ufffd\ufffd"


def test_a_port_may_be_a_socket(near: Broker) -> None:
    """As pyserial's URLs are."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, number = server.getsockname()
        bridge = Bridge(f"socket://{host}:{number}", near)
        try:
            end, _ = server.accept()
            with end:
                board = Board(end.fileno())
                board.hear(BEGIN)
                board.send(frame(OPEN, 7, HELLO))
                board.hear(OPEN)
                board.send(frame(DATA, 7, b"\xc0\x00"))  # no CONNECT: the broker hangs up
                board.hear(ACK)
                board.hear(CLOSE)
        finally:
            bridge.stop()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has no such times")
@pytest.mark.parametrize("command", ["bridge", "logs"])
def test_a_machine_that_loses_power_is_noticed_within_a_minute(command: str) -> None:
    """Its board would be waited for without end: it closes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = "socket://{}:{}".format(*server.getsockname())
        if command == "logs":
            port = logs._opened(url)
        else:
            port = Line(url, 115200, mock.Mock(), mock.Mock())._port
        times = [
            getattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        ]
        idle, every, count = (port._socket.getsockopt(socket.IPPROTO_TCP, n) for n in times)
        alive = port._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        port.close()
    assert alive
    assert idle + every * count <= 60


def test_nobody_listens(shared_brokers: SharedBrokers) -> None:
    """The board learns it at once, each time, and the user once."""
    with socket.socket() as taken, terminal() as (board, port):
        taken.bind(("127.0.0.1", 0))

        class Nobody:
            host, port = taken.getsockname()

        bridge = Bridge(port, Nobody)  # type: ignore[arg-type]
        try:
            board.hear(BEGIN)
            for who in (7, 8, 9):
                board.send(frame(OPEN, who, HELLO))
                while board.hear_from(CLOSE) != who:
                    pass
        finally:
            bridge.stop()
    assert sum("no connection to" in text for _, text in bridge.lines) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning:serial.rfc2217")
def test_a_port_on_another_machine(near: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """By RFC 2217, and again when that machine has closed the connection."""
    monkeypatch.setattr(pump, "RETRY", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS)
        port = server.getsockname()[1]
        bridge = Bridge(f"rfc2217://127.0.0.1:{port}", near)
        try:
            for _ in range(2):
                end, _ = server.accept()
                with end:
                    end.settimeout(SECONDS)
                    link = mock.Mock(write=end.sendall)
                    remote_port = serial.rfc2217.PortManager(
                        serial.serial_for_url("loop://"), link
                    )
                    decoder = Decoder()
                    answers = {BEGIN: frame(OPEN, 7, HELLO), OPEN: frame(DATA, 7, CONNECT)}
                    kind = -1
                    while kind != DATA:
                        data = end.recv(4096)
                        assert data, "the bridge has closed it"
                        for head, _ in decoded(b"".join(remote_port.filter(data)), decoder):
                            kind = head[0] - SMALL
                            end.sendall(b"".join(remote_port.escape(answers.get(kind, b""))))
        finally:
            bridge.stop()
