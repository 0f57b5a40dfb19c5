"""The commands connect with TLS, and with a wrong pin or authority they send nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from click.testing import CliRunner, Result

from flatmq import Client
from flatmq import stream_tls_cpython as tls_link
from flatmq.frames import BEGIN, CLOSE, DATA, OPEN
from flatmq_tools import broker, trust, watch
from flatmq_tools.cli import main as cli
from flatmq_tools.fleet import fleet
from flatmq_tools.fleet import link as fleet_link
from uart.test_bridge_command import CONNECT, run, terminal
from uart.test_conversation import HELLO, frame

from . import issued
from .conftest import Guarded

DEADLINE = 120.0  # seconds
SECRET = "s3cret-of-all"
PACK = json.dumps([{"bn": "b1/", "n": "boot", "v": 1}, {"n": "seq", "v": 1}]).encode()


def flatmq(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture
def packed(guarded: Guarded) -> Iterator[Guarded]:
    """The broker, with a pack of a board that whoever subscribes is sent."""
    board = Client(b"b1", guarded.running.host, guarded.running.port)
    board.connect()
    board.publish(b"dev/b1/telemetry", PACK, qos=1, retain=True)
    assert board.wait(10_000)
    yield guarded
    board.publish(b"dev/b1/telemetry", b"", qos=1, retain=True)
    assert board.wait(10_000)
    board.disconnect()


WAYS = (
    "authority",
    "intermediate and root",
    "pin",
    "one of two pins",
    "both",
    "own certificate",
    "TLS 1.3",
)


def way_of(guarded: Guarded, way: str) -> tuple[int, list[object]]:
    """The port and the options of a way to connect with TLS."""
    ca = ["--ca", guarded.ca]
    pin = ["--pin", guarded.pin]
    return {
        "authority": (guarded.tls, ca),
        "intermediate and root": (guarded.tls, ["--ca", guarded.chain]),
        "pin": (guarded.tls, pin),
        "one of two pins": (guarded.tls, ["--pin", "A" * 43 + "=", *pin]),
        "both": (guarded.tls, ["--tls", *ca, *pin]),
        "own certificate": (guarded.strict, [*ca, "--cert", guarded.cert, "--key", guarded.key]),
        "TLS 1.3": (guarded.modern, ca),
    }[way]


@pytest.mark.parametrize("way", WAYS)
def test_watch(way: str, packed: Guarded) -> None:
    port, options = way_of(packed, way)
    said = flatmq("watch", packed.at(port), "--packs", 1, "--seconds", DEADLINE, *options)
    assert said.exit_code == 0, said.output
    assert "b1" in said.output


@pytest.mark.parametrize("way", WAYS)
def test_fleet(way: str, guarded: Guarded) -> None:
    port, options = way_of(guarded, way)
    said = flatmq("fleet", guarded.at(port), "--devices", 5, "--rate", 10, "--seconds", 1,
                  "--calm", "--reboots", 20, *options)  # fmt: skip
    assert said.exit_code == 0, said.output
    assert "everything that was published was acknowledged" in said.output


@pytest.mark.parametrize("way", ["authority", "pin", "own certificate", "TLS 1.3"])
def test_bridge(way: str, guarded: Guarded) -> None:
    port, options = way_of(guarded, way)
    with terminal() as (board, line):
        process = run(line, guarded.at(port), *map(str, options))
        board.hear(BEGIN)
        board.send(frame(OPEN, 7, HELLO))
        board.hear(OPEN)
        board.send(frame(DATA, 7, CONNECT))
        assert board.hear(DATA)[:1] == b"\x20"  # CONNACK
        process.terminate()
        told, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, told


@pytest.mark.parametrize("way", ["authority", "pin", "own certificate"])
def test_ingest(way: str, packed: Guarded, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    port, options = way_of(packed, way)
    landed = tmp_path / "landed"
    process = subprocess.Popen(
        [sys.executable, "-m", "flatmq_tools.cli", "pipeline", "ingest", packed.at(port),
         str(landed), "--log", str(tmp_path / "log"), "--every", "0.1", *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    end = time.monotonic() + DEADLINE
    while not list(landed.glob("*.parquet")) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    process.terminate()
    told, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, told


def test_paho(guarded: Guarded) -> None:
    """The context serves clients that know nothing of pins."""
    assert _paho(guarded.tls, trust.Trust(pins=trust.pins(guarded.pin)))
    with pytest.raises(trust.PinError, match=guarded.pin.replace("+", "[+]")):
        _paho(guarded.tls, trust.Trust(pins=(bytes(32),)))


def _paho(port: int, how: trust.Trust) -> bool:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set()
    client.tls_set_context(how.context())
    client.connect(broker.LOOPBACK, port)
    client.loop_start()
    try:
        return ready.wait(DEADLINE)
    finally:
        client.disconnect()
        client.loop_stop()


class Listener:
    """A TLS server that notes what each client sends once the handshake is over."""

    def __init__(self, folder: Path) -> None:
        leaf = issued.Issued("somebody", hosts=issued.HERE, authority=True)
        cert, key = leaf.write(folder, "somebody")
        self.pin = leaf.pin
        self.sent: list[bytes] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self._server = socket.create_server((broker.LOOPBACK, 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{broker.LOOPBACK}:{self._server.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                end, _ = self._server.accept()
            except OSError:
                return
            end.settimeout(DEADLINE)
            try:
                with self._context.wrap_socket(end, server_side=True) as secured:
                    self.sent.append(secured.recv(4096))
            except OSError:
                end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was closed before
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(DEADLINE)


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("FLATMQ_PASSWORD", SECRET)
    monkeypatch.setattr(watch, "PATIENCE_MS", 1000)
    made = Listener(tmp_path)
    yield made
    made.close()


WRONG = ["pin", "authority"]


def wrong(how: str, guarded: Guarded) -> list[object]:
    return {"pin": ["--pin", guarded.pin], "authority": ["--ca", guarded.ca]}[how]


def connect(command: str, address: str, options: list[object], folder: Path) -> str:
    """Have a command connect and fail; returns what it says."""
    if command == "bridge":
        with terminal() as (board, line):
            process = run(line, address, *map(str, options))
            board.hear(BEGIN)
            board.send(frame(OPEN, 7, HELLO))
            board.hear(CLOSE)
            process.terminate()
            return process.communicate(timeout=DEADLINE)[0]
    if command == "ingest":
        pytest.importorskip("pyarrow")
        log = ["--log", folder / "log", "--seconds", 1, "--user", "alice"]
        return flatmq("pipeline", "ingest", address, folder / "landed", *log, *options).output
    few = ["--devices", 2, "--seconds", 1] if command == "fleet" else []
    said = flatmq(command, address, "--user", "alice", *few, *options)
    assert said.exit_code == 1, said.output
    return said.output


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("command", ["watch", "fleet", "bridge", "ingest"])
def test_nothing_is_sent_to_somebody_else(
    command: str, how: str, guarded: Guarded, listener: Listener, tmp_path: Path
) -> None:
    told = connect(command, listener.address, wrong(how, guarded), tmp_path)
    listener.close()
    assert not any(listener.sent)
    assert SECRET not in told
    if how == "pin":
        assert listener.pin in told.replace("\n", "")


def no_use(mistake: str, guarded: Guarded) -> tuple[int, list[object], str]:
    """Return the port, the options and the text of a mistake that no further try mends."""
    ca = ["--ca", guarded.ca]
    return {
        "authority": (guarded.tls, ["--ca", guarded.other], "unknown authority"),
        "expired": (guarded.late, ca, "has expired by this clock"),
        "pin": (guarded.tls, ["--pin", "A" * 43 + "="], guarded.pin),
        "no certificate": (guarded.strict, ca, "needs a client certificate"),
        "no TLS": (guarded.running.port, ca, "use the port that has TLS"),
    }[mistake]


@pytest.mark.parametrize("mistake", ["authority", "expired", "pin", "no certificate", "no TLS"])
@pytest.mark.parametrize("command", ["watch", "fleet"])
def test_a_mistake_is_reported_at_once(
    command: str, mistake: str, guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one try, or after a second look if all that is known is that the broker has closed.
    One poll may see two tries. Of these only tries count of which TLS says something: on a busy
    machine the alert may be lost, and then the network may have closed the connection."""
    monkeypatch.setattr(watch, "PATIENCE_MS", 60_000)
    monkeypatch.setattr(fleet, "RAMP_PATIENCE", 60.0)
    tries, known = [], []
    for link in (tls_link.Link, fleet_link.TLSLink):
        connect, why = link.connect, link.why

        def counted(self: Any, connect: Callable[[Any], None] = connect) -> None:
            tries.append(self)
            connect(self)

        def explained(self: Any, error: Any, why: Callable[[Any, Any], Any] = why) -> Any:
            found = why(self, error)
            known.extend([found] if found is not None else [])
            return found

        monkeypatch.setattr(link, "connect", counted)
        monkeypatch.setattr(link, "why", explained)
    port, options, text = no_use(mistake, guarded)
    few = ["--devices", 1, "--seconds", 1] if command == "fleet" else []
    said = flatmq(command, guarded.at(port, "localhost"), *few, *options)
    assert said.exit_code == 1
    assert text in said.output.replace("\n", " "), said.output
    if mistake in ("no certificate", "no TLS"):
        assert 1 <= len(known) <= 4
    else:
        assert len(tries) == 1


def test_the_listener_notes_what_is_sent(listener: Listener) -> None:
    flatmq("watch", listener.address, "--user", "alice", "--pin", listener.pin)
    listener.close()
    assert any(SECRET.encode() in data for data in listener.sent)


MISTAKES = [
    (["--pin", "x"], "--pin must be the SHA-256 of a public key, 32 bytes in Base64, not 'x'"),
    (["--key", "client.key"], "--key needs its certificate in --cert"),
    (["--ca", "empty"], "--ca empty: must be a certificate in PEM or DER"),
    (["--ca", "client.key"], "--ca client.key: must be a certificate in PEM or DER"),
    (["--cert", "client.key"], "--cert client.key: must be a certificate in PEM"),
    (["--cert", "client.pem"], "--key client.pem: must be a private key in PEM"),
    (
        ["--cert", "client.pem", "--key", "other.key"],
        "--key other.key: must be the key of the certificate in --cert client.pem",
    ),
    (["--cert", "client.pem", "--key", "locked.key"], "--key locked.key: must not be encrypted"),
]


@pytest.mark.parametrize("command", ["watch", "fleet", "bridge", "ingest"])
@pytest.mark.parametrize(("options", "error"), MISTAKES, ids=[error for _, error in MISTAKES])
def test_an_error_names_the_option_and_the_file(
    command: str,
    options: list[str],
    error: str,
    guarded: Guarded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = issued.Issued("client")
    mine.write(tmp_path, "client")
    issued.Issued("other").write(tmp_path, "other")
    (tmp_path / "locked.key").write_bytes(mine.key_bytes(password=b"x"))
    (tmp_path / "empty").touch()
    before = {"bridge": ["bridge", "/dev/null"], "ingest": ["pipeline", "ingest"]}
    after = ["landed"] if command == "ingest" else []
    said = flatmq(*before.get(command, [command]), guarded.at(guarded.tls), *after, *options)
    assert said.exit_code == 1
    assert said.output.startswith(f"Error: {error}"), said.output
    assert said.output.count("\n") == 1


def test_the_options_are_the_same_everywhere() -> None:
    texts = set()
    for command in (["watch"], ["fleet"], ["bridge"], ["pipeline", "ingest"], ["pipeline", "run"]):
        said = CliRunner().invoke(cli, [*command, "--help"], terminal_width=400)
        lines = [" ".join(line.split()) for line in said.output.splitlines()]
        texts.add(tuple(sorted(
            line for line in lines
            if line.startswith(("--tls ", "--ca ", "--cert ", "--key ", "--pin "))
        )))  # fmt: skip
    assert len(texts) == 1
    assert len(texts.pop()) == 5
