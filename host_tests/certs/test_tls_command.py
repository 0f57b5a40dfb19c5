"""`flatmq tls`, against a real broker and against ends that are none."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from flatmq_tools import broker, ports, probe
from flatmq_tools.cli import main as cli

from .conftest import Guarded


def tls(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["tls", *map(str, arguments)])


def test_it_shows_what_the_broker_presents(guarded: Guarded) -> None:
    said = tls(guarded.at(guarded.tls, "localhost"))
    assert said.exit_code == 0, said.output
    for line in (
        f"localhost:{guarded.tls}  TLSv1.2, ECDHE-ECDSA-AES",
        "  broker  (the broker's)",
        "names      localhost, 127.0.0.1",
        "signed by  Test Intermediate",
        "  Test Intermediate  (intermediate)",
        "key        P-256",
        "364 days left",
        "It does not ask for a client certificate.",
        "Its certificate is not verified by the authorities of this machine: unable to get local",
        f"--set broker.tls.pin={guarded.pin}",
        "not possible yet: the broker does not send the authority that signed its certificate",
    ):
        assert line in said.output


@pytest.mark.parametrize("kind", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_an_authority_of_this_machine_is_saved(
    kind: str, guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a folder are not read before they are needed."""
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    monkeypatch.setenv("SSL_CERT_DIR", "/none")
    place = guarded.ca
    if kind == "SSL_CERT_DIR":
        asked = ["openssl", "x509", "-hash", "-noout", "-in", str(guarded.ca)]
        name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        place = tmp_path / "authorities"
        place.mkdir()
        (place / f"{name}.0").write_bytes(guarded.ca.read_bytes())
    monkeypatch.setenv(kind, str(place))
    said = tls(guarded.at(guarded.tls), "--save", tmp_path / "ca.pem")
    assert said.exit_code == 0, said.output
    assert "Its certificate is verified by the authorities of this machine." in said.output
    assert (tmp_path / "ca.pem").read_bytes() == guarded.ca.read_bytes()


def test_it_picks_the_brokers_authority_and_saves_it(guarded: Guarded, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(guarded.other.read_bytes() + guarded.ca.read_bytes())
    for name in ("found.pem", "found.der"):
        said = tls(guarded.at(guarded.tls), "--ca", bundle, "--save", tmp_path / name)
        assert said.exit_code == 0, said.output
        assert f"Its certificate is verified by {bundle}." in said.output
        assert f"Test Root is saved in {tmp_path / name}." in said.output
        assert (
            f"--set broker.host=127.0.0.1 --set broker.port={guarded.tls} "
            f"--set broker.tls.ca={tmp_path / name}" in said.output
        )
    wanted = x509.load_pem_x509_certificate(guarded.ca.read_bytes())
    assert x509.load_pem_x509_certificate((tmp_path / "found.pem").read_bytes()) == wanted
    assert x509.load_der_x509_certificate((tmp_path / "found.der").read_bytes()) == wanted


def test_a_broker_that_needs_a_certificate(guarded: Guarded) -> None:
    said = tls(guarded.at(guarded.strict), "--ca", guarded.ca)
    assert said.exit_code == 0, said.output
    assert "It needs a client certificate." in said.output
    assert "--set broker.tls.cert=FILE --set broker.tls.key=FILE" in said.output
    assert f"Its certificate is verified by {guarded.ca}." in said.output


def test_a_name_that_the_certificate_has_not(guarded: Guarded) -> None:
    said = tls(guarded.at(guarded.late, "127.0.0.1"), "--ca", guarded.ca)
    assert said.exit_code == 1
    assert "Boards refuse it: its certificate is for localhost, not for 127.0.0.1" in said.output
    assert "Boards refuse it: its certificate expired on " in said.output
    assert f"not verified by {guarded.ca}: certificate has expired." in said.output


def test_saving_what_is_not_known(guarded: Guarded, tmp_path: Path) -> None:
    said = tls(guarded.at(guarded.tls), "--save", tmp_path / "ca.pem")
    assert said.exit_code == 1
    assert "ca.pem: the broker does not send the authority" in said.output
    assert f"--set broker.tls.pin={guarded.pin}" in said.output
    assert not (tmp_path / "ca.pem").exists()


def test_tls_1_3_only(guarded: Guarded) -> None:
    said = tls(guarded.at(guarded.modern))
    assert said.exit_code == 1
    assert said.output == (
        f"Error: 127.0.0.1:{guarded.modern}: has TLS 1.3 only, or none later than TLS 1.1; boards "
        "have TLS 1.2. Allow TLS 1.2 at the broker\n"
    )


def test_a_port_without_tls(guarded: Guarded) -> None:
    said = tls(guarded.running.address)
    assert said.exit_code == 1
    assert said.output.startswith(
        f"Error: {guarded.running.address}: closed the connection without an answer, as a broker "
    )


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of something that treats each connection so."""
    with socket.create_server((broker.LOOPBACK, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    end, _ = server.accept()
                except OSError:
                    return
                with end:
                    answer(end)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_something_else_at_that_port() -> None:
    def http(end: socket.socket) -> None:
        end.recv(4096)
        end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with answering(http) as address:
        said = tls(address)
    assert said.exit_code == 1
    assert said.output == (
        f"Error: {address}: does not speak TLS; brokers usually do at port 8883\n"
    )


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.2)
    over = threading.Event()
    with answering(lambda _: over.wait(20) and None) as address:
        said = tls(address)
        over.set()
    assert said.exit_code == 1
    assert said.output == (
        f"Error: {address}: accepts connections, but sends no answer within 0.2 s\n"
    )


def test_nobody_there() -> None:
    said = tls(f"127.0.0.1:{ports.free_port()}")
    assert said.exit_code == 1
    assert "connection refused: nothing listens there" in said.output
    assert "broker must be HOST or HOST:PORT" in tls("host:x").output
