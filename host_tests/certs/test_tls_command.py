"""`flatmq tls`, against a real broker and against ends that are none."""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from cryptography import x509

import typed_command
from flatmq_tools import ports, probe
from tls.secure_broker import SecureBroker

from .answering import answering


def tls(*arguments: object) -> Result:
    return typed_command.flatmq("tls", *arguments)


def place(secure: SecureBroker, listener: str, host: str = "127.0.0.1") -> str:
    return f"{host}:{secure.ports[listener]}"


def test_it_shows_what_the_broker_presents(secure: SecureBroker) -> None:
    said = tls(place(secure, "chained", "localhost"))
    assert said.exit_code == 0, said.output
    for line in (
        f"{place(secure, 'chained', 'localhost')}  TLSv1.2, ECDHE-ECDSA-AES",
        "  broker  (the broker's)",
        "names      localhost, 127.0.0.1",
        "signed by  Test Intermediate",
        "  Test Intermediate  (intermediate)",
        "key        P-256",
        "364 days left",
        "It does not ask for a client certificate.",
        "Its certificate is not verified by the authorities of this machine: unable to get local",
        f"--set broker.tls.pin={secure.pins['chained']}",
        "not possible yet: the broker does not send the authority that signed its certificate",
    ):
        assert line in said.output


@pytest.mark.parametrize("kind", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_an_authority_of_this_machine_is_saved(
    kind: str, secure: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a folder are not read before they are needed."""
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    monkeypatch.setenv("SSL_CERT_DIR", "/none")
    ca = Path(secure.path("ca.pem"))
    authorities = ca
    if kind == "SSL_CERT_DIR":
        asked = ["openssl", "x509", "-hash", "-noout", "-in", str(ca)]
        name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        authorities = tmp_path / "authorities"
        authorities.mkdir()
        (authorities / f"{name}.0").write_bytes(ca.read_bytes())
    monkeypatch.setenv(kind, str(authorities))
    said = tls(place(secure, "chained"), "--save", tmp_path / "ca.pem")
    assert said.exit_code == 0, said.output
    assert "Its certificate is verified by the authorities of this machine." in said.output
    assert (tmp_path / "ca.pem").read_bytes() == ca.read_bytes()


def test_it_picks_the_brokers_authority_and_saves_it(secure: SecureBroker, tmp_path: Path) -> None:
    ca, other = (Path(secure.path(name)).read_bytes() for name in ("ca.pem", "other.pem"))
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(other + ca)
    for name in ("found.pem", "found.der"):
        said = tls(place(secure, "chained"), "--ca", bundle, "--save", tmp_path / name)
        assert said.exit_code == 0, said.output
        assert f"Its certificate is verified by {bundle}." in said.output
        assert f"Test Root is saved in {tmp_path / name}." in said.output
        assert (
            f"--set broker.host=127.0.0.1 --set broker.port={secure.ports['chained']} "
            f"--set broker.tls.ca={tmp_path / name}" in said.output
        )
    wanted = x509.load_pem_x509_certificate(ca)
    assert x509.load_pem_x509_certificate((tmp_path / "found.pem").read_bytes()) == wanted
    assert x509.load_der_x509_certificate((tmp_path / "found.der").read_bytes()) == wanted


@pytest.mark.parametrize(("listener", "status", "texts"), [
    ("mutual", 0, ["It needs a client certificate.", "Its certificate is verified by {ca}.",
                   "--set broker.tls.cert=FILE --set broker.tls.key=FILE"]),
    ("named", 1, ["Boards refuse it: its certificate is for broker.example, not for 127.0.0.1"]),
    ("expired", 1, ["Boards refuse it: its certificate expired on ",
                    "not verified by {ca}: certificate has expired."]),
    ("modern", 1, ["Error: {place}: has TLS 1.3 only, or none later than TLS 1.1; boards "
                   "have TLS 1.2. Allow TLS 1.2 at the broker\n"]),
    ("plain", 1, ["Error: {place}: closed the connection without an answer, as a broker "]),
])  # fmt: skip
def test_what_boards_need_or_refuse(
    listener: str, status: int, texts: list[str], secure: SecureBroker
) -> None:
    ca = secure.path("ca.pem")
    said = tls(place(secure, listener), "--ca", ca)
    assert said.exit_code == status, said.output
    for text in texts:
        assert text.format(ca=ca, place=place(secure, listener)) in said.output


def test_saving_what_is_not_known(secure: SecureBroker, tmp_path: Path) -> None:
    said = tls(place(secure, "chained"), "--save", tmp_path / "ca.pem")
    assert said.exit_code == 1
    assert "ca.pem: the broker does not send the authority" in said.output
    assert f"--set broker.tls.pin={secure.pins['chained']}" in said.output
    assert not (tmp_path / "ca.pem").exists()


def _http(end: socket.socket) -> None:
    end.recv(4096)
    end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(("answer", "says"), [
    (_http, "does not speak TLS; brokers usually do at port 8883"),
    (lambda end: end.recv(4096) and time.sleep(0.5),
     "accepts connections, but sends no answer within 0.2 s"),
])  # fmt: skip
def test_something_else_at_that_port(
    answer: Callable[[socket.socket], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.2)
    with answering(answer) as address:
        said = tls(address)
    assert (said.exit_code, said.output) == (1, f"Error: {address}: {says}\n")


@pytest.mark.parametrize("listener", ["chained", "mutual"])
def test_a_broker_that_does_not_answer_twice_is_not_called_verified(
    listener: str, secure: SecureBroker
) -> None:
    ends: list[socket.socket] = []

    def once(end: socket.socket) -> None:
        ends.append(end)
        if len(ends) == 1:
            with socket.create_connection(("127.0.0.1", secure.ports[listener])) as broker:
                threading.Thread(target=_pass, args=(broker, end)).start()
                _pass(end, broker)

    with answering(once) as address:
        said = tls(address)
    assert said.exit_code == 1
    assert said.output.startswith(f"Error: {address}: the second connection failed: ")


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(4096):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_nobody_there() -> None:
    said = tls(f"127.0.0.1:{ports.free_port()}")
    assert said.exit_code == 1
    assert "connection refused: nothing listens there" in said.output
    assert "broker must be HOST or HOST:PORT" in tls("host:x").output
