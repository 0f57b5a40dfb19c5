"""The commands connect with TLS, and with a wrong pin or authority they send nothing."""

import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as paho
import pytest
from click.testing import CliRunner

import sizes
import typed_command
from flatmq import Client
from flatmq import stream_tls_cpython as tls_link
from flatmq.frames import BEGIN, CLOSE, DATA, OPEN
from flatmq.stream_tls import TLS
from flatmq_rigs import certificates
from flatmq_tools import broker, desk_client, trust
from flatmq_tools.cli import main as cli
from flatmq_tools.fleet import fleet
from observer import retain, until
from sizes import spread
from tls.secure_broker import SecureBroker
from typed_command import flatmq, said
from uart.test_bridge_command import CONNECT, run, terminal
from uart.test_conversation import HELLO, frame

from .answering import answering

DEADLINE = 120.0  # seconds
SECRET = "s3cret-of-all"
PACK = json.dumps([{"bn": "b1/", "n": "boot", "v": 1}, {"n": "seq", "v": 1}]).encode()


@pytest.fixture
def packed(secure: SecureBroker) -> Iterator[SecureBroker]:
    """The broker, with a pack of a board that whoever subscribes is sent."""
    where = secure.broker.host, secure.broker.port, "dev/b1/telemetry"
    retain(*where, PACK)
    yield secure
    retain(*where, b"")


# The listener and the options of each way to connect: files of the broker, and its pins.
WAYS = {
    "authority": ("chained", "--ca ca.pem"),
    "intermediate and root": ("chained", "--ca chain.pem"),
    "pin": ("chained", "--pin chained"),
    "one of two pins": ("chained", "--pin other --pin chained"),
    "both": ("chained", "--tls --ca ca.pem --pin chained"),
    "own certificate": ("mutual", "--ca ca.pem --cert client.pem --key client.key.pem"),
    "TLS 1.3": ("modern", "--ca ca.pem"),
}


def options_of(secure: SecureBroker, text: str) -> list[str]:
    return [
        secure.path(word) if word.endswith(".pem") else secure.pins.get(word, word)
        for word in text.split()
    ]


def watches(address: str, options: list[str], folder: Path) -> None:
    assert "b1" in said("watch", address, "--packs", 1, "--seconds", DEADLINE, *options)


def plays_a_fleet(address: str, options: list[str], folder: Path) -> None:
    shown = said("fleet", address, "--devices", 5, "--rate", 10, "--seconds", 1,
                 "--calm", "--reboots", 20, *options)  # fmt: skip
    assert "everything that was published was acknowledged" in shown


def bridges(address: str, options: list[str], folder: Path) -> None:
    with terminal() as (board, line):
        process = run("bridge", line, address, *options)
        board.hear(BEGIN)
        board.send(frame(OPEN, 7, HELLO))
        board.hear(OPEN)
        board.send(frame(DATA, 7, CONNECT))
        assert board.hear(DATA)[:1] == b"\x20"  # CONNACK
        typed_command.interrupt(process)


def ingests(address: str, options: list[str], folder: Path) -> None:
    pytest.importorskip("pyarrow")
    landed = folder / "landed"
    command = [sys.executable, "-m", "flatmq_tools.cli", "pipeline", "ingest", address,
               str(landed), "--log", str(folder / "log"), "--every", "0.1", *options]  # fmt: skip
    with typed_command.running(command, folder, os.environ) as process:
        typed_command.when(lambda: list(landed.glob("raw/_delta_log/*.json")), process)
        typed_command.interrupt(process)


COMMANDS = {"watch": watches, "fleet": plays_a_fleet, "bridge": bridges, "ingest": ingests}


@pytest.mark.parametrize(
    ("command", "way"),
    sizes.one_each(
        itertools.product(COMMANDS, WAYS), lambda case: case[1] if case[0] == "watch" else case[0]
    ),
)
def test_a_command_connects(command: str, way: str, packed: SecureBroker, tmp_path: Path) -> None:
    listener, options = WAYS[way]
    address = f"127.0.0.1:{packed.ports[listener]}"
    COMMANDS[command](address, options_of(packed, options), tmp_path)


def test_paho(secure: SecureBroker) -> None:
    """The context serves clients that know nothing of pins."""
    pin = secure.pins["chained"]
    assert _paho(secure.ports["chained"], trust.Trust(pins=trust.pins(pin)))
    with pytest.raises(trust.PinError, match=re.escape(pin)):
        _paho(secure.ports["chained"], trust.Trust(pins=(bytes(32),)))


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


class Somebody(NamedTuple):
    """A TLS server that notes what each client sends once the handshake is over."""

    address: str
    pin: str
    sent: list[bytes]


@contextlib.contextmanager
def somebody(folder: Path) -> Iterator[Somebody]:
    leaf = certificates.Issued("somebody", hosts=certificates.HERE, authority=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*leaf.write(folder, "somebody"))
    sent: list[bytes] = []

    def note(end: socket.socket) -> None:
        with context.wrap_socket(end, server_side=True) as secured:
            sent.append(secured.recv(4096))

    with answering(note) as address:
        yield Somebody(address, leaf.pin, sent)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLATMQ_PASSWORD", SECRET)
    monkeypatch.setattr(desk_client, "PATIENCE_MS", 1000)


WRONG = {"pin": "--pin chained", "authority": "--ca ca.pem"}


def connect(command: str, address: str, options: list[str], folder: Path) -> str:
    """Have a command connect and fail; returns what it says."""
    if command == "bridge":
        with terminal() as (board, line):
            process = run("bridge", line, address, *options)
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
    done = flatmq(command, address, "--user", "alice", *few, *options)
    assert done.exit_code == 1, done.output
    return done.output


@spread("command", COMMANDS, how=WRONG)
def test_nothing_is_sent_to_somebody_else(
    command: str, how: str, secure: SecureBroker, secret: None, tmp_path: Path
) -> None:
    with somebody(tmp_path) as other:
        output = connect(command, other.address, options_of(secure, WRONG[how]), tmp_path)
    assert not any(other.sent)
    assert SECRET not in output
    if how == "pin":
        assert other.pin in output.replace("\n", "")


def test_somebody_notes_what_is_sent(secret: None, tmp_path: Path) -> None:
    with somebody(tmp_path) as other:
        flatmq("watch", other.address, "--user", "alice", "--pin", other.pin)
    assert any(SECRET.encode() in data for data in other.sent)


def renewed(secure: SecureBroker, folder: Path, name: str) -> None:
    """Write a certificate and its key where the client has them."""
    for suffix in (".pem", ".key.pem"):
        (folder / f"client{suffix}").write_bytes(Path(secure.path(name + suffix)).read_bytes())


@pytest.mark.parametrize("kind", [TLS, trust.Trust])
def test_a_client_that_runs_shows_its_renewed_certificate(
    kind: Any, secure: SecureBroker, tmp_path: Path
) -> None:
    path = str if kind is TLS else Path
    files = {name: path(tmp_path / f"client{end}")
             for name, end in (("cert", ".pem"), ("key", ".key.pem"))}  # fmt: skip
    renewed(secure, tmp_path, "old")
    tls = kind(ca=path(secure.path("ca.pem")), **files)
    port = secure.ports["older"]
    client = Client(b"c", "127.0.0.1", port, tls=tls, retry_ms=50, retry_max_ms=50, quiet=True)
    client.start()
    until("a refusal", lambda: client.error and client.error.kind == "tls", lambda: client.poll(9))
    (tmp_path / "client.key.pem").write_bytes(b"half a ke")  # for a moment
    losses = client.stats.losses
    until("a look at it", lambda: client.stats.losses > losses, lambda: client.poll(9))
    renewed(secure, tmp_path, "client")
    until("the broker", lambda: client.connected, lambda: client.poll(9))
    client.disconnect()


def test_a_bridge_that_runs_shows_its_renewed_certificate(
    secure: SecureBroker, tmp_path: Path
) -> None:
    renewed(secure, tmp_path, "client")
    options = ["--ca", secure.path("ca.pem"), "--cert", f"{tmp_path}/client.pem"]
    options += ["--key", f"{tmp_path}/client.key.pem"]
    with terminal() as (board, line):
        process = run("bridge", line, f"127.0.0.1:{secure.ports['older']}", *options)
        try:
            board.hear(BEGIN)
            renewed(secure, tmp_path, "old")
            board.send(frame(OPEN, 7, HELLO))
            while board.hear_from(CLOSE) != 7:
                pass
            renewed(secure, tmp_path, "client")
            board.send(frame(OPEN, 8, HELLO))
            board.hear(OPEN)
            board.send(frame(DATA, 8, CONNECT))
            assert board.hear(DATA)[:1] == b"\x20"
        finally:
            process.terminate()
            output, _ = process.communicate(timeout=DEADLINE)
    assert "the connection to 127.0.0.1" in output
    assert "certificate expired" in output


# The listener, the options and the text of each mistake that no further try mends.
NO_USE = {
    "authority": ("chained", "--ca other.pem", "unknown authority"),
    "expired": ("expired", "--ca ca.pem", "has expired by this clock"),
    "pin": ("chained", "--pin other", "{chained}"),
    "no certificate": ("mutual", "--ca ca.pem", "needs a client certificate"),
    "no TLS": ("plain", "--ca ca.pem", "use the port that has TLS"),
}


@spread("mistake", NO_USE, command=("watch", "fleet"))
def test_a_mistake_is_reported_at_once(
    command: str, mistake: str, secure: SecureBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one try, or after a second look if all that is known is that the broker has closed.
    One poll may see two tries. Of these only tries count of which TLS says something: on a busy
    machine the alert may be lost, and then the network may have closed the connection."""
    monkeypatch.setattr(desk_client, "PATIENCE_MS", 60_000)
    monkeypatch.setattr(fleet, "RAMP_PATIENCE", 60.0)
    tries, known = [], []
    connect, why = tls_link.Link.connect, tls_link.Link.why

    def counted(self: Any) -> None:
        tries.append(self)
        connect(self)

    def explained(self: Any, error: Any) -> Any:
        found = why(self, error)
        known.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(tls_link.Link, "connect", counted)
    monkeypatch.setattr(tls_link.Link, "why", explained)
    listener, options, text = NO_USE[mistake]
    few = ["--devices", 1, "--seconds", 1] if command == "fleet" else []
    address = f"localhost:{secure.ports[listener]}"
    done = flatmq(command, address, *few, *options_of(secure, options))
    assert done.exit_code == 1
    assert text.format(**secure.pins) in done.output.replace("\n", " "), done.output
    if mistake in ("no certificate", "no TLS"):
        assert 1 <= len(known) <= 4
    else:
        assert len(tries) == 1


MISTAKES = [
    (["--pin", "x"], "--pin must be the SHA-256 of a public key, 32 bytes in Base64, not 'x'"),
    (["--key", "client.key.pem"], "--key needs its certificate in --cert"),
    (["--ca", "empty"], "--ca empty: must be a certificate in PEM or DER"),
    (["--ca", "client.key.pem"], "--ca client.key.pem: must be a certificate in PEM or DER"),
    (["--cert", "client.key.pem"], "--cert client.key.pem: must be a certificate in PEM"),
    (["--cert", "client.pem"], "--key client.pem: must be a private key in PEM"),
    (
        ["--cert", "client.pem", "--key", "other.key.pem"],
        "--key other.key.pem: must be the key of the certificate in --cert client.pem",
    ),
    (["--cert", "client.pem", "--key", "locked.key"], "--key locked.key: must not be encrypted"),
]


@spread("mistake", MISTAKES, command=COMMANDS)
def test_an_error_names_the_option_and_the_file(
    mistake: tuple[list[str], str],
    command: str,
    secure: SecureBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, error = mistake
    monkeypatch.chdir(tmp_path)
    mine = certificates.Issued("client")
    mine.write(tmp_path, "client")
    certificates.Issued("other").write(tmp_path, "other")
    (tmp_path / "locked.key").write_bytes(mine.key_bytes(password=b"x"))
    (tmp_path / "empty").touch()
    before = {"bridge": ["bridge", "/dev/null"], "ingest": ["pipeline", "ingest"]}
    after = ["landed"] if command == "ingest" else []
    done = flatmq(
        *before.get(command, [command]), f"127.0.0.1:{secure.ports['broker']}", *after, *options
    )
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: {error}"), done.output
    assert done.output.count("\n") == 1


def test_the_options_are_the_same_everywhere() -> None:
    texts = set()
    for command in (["watch"], ["fleet"], ["bridge"], ["pipeline", "ingest"], ["pipeline", "run"]):
        done = CliRunner().invoke(cli, [*command, "--help"], terminal_width=400)
        lines = [" ".join(line.split()) for line in done.output.splitlines()]
        texts.add(tuple(sorted(
            line for line in lines
            if line.startswith(("--tls ", "--ca ", "--cert ", "--key ", "--pin "))
        )))  # fmt: skip
    assert len(texts) == 1
    assert len(texts.pop()) == 5
