"""A broker with TLS listeners of several kinds, and the certificates that belong to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flatmq_tools import broker, ports

from . import issued


@dataclass
class Guarded:
    """A mosquitto on loopback, and what its clients need."""

    running: broker.Broker
    tls: int
    """The port with TLS; `running.port` is the one without."""
    strict: int
    """The port with TLS that needs a client certificate."""
    modern: int
    """The port with TLS 1.3 only."""
    late: int
    """The port whose certificate has expired."""
    ca: Path
    other: Path
    """An authority that signed nothing here."""
    chain: Path
    """The root, and the intermediate authority that signed the broker's certificate."""
    cert: Path
    key: Path
    """A client's certificate and key."""
    rsa: tuple[Path, Path]
    """The same, with a key of RSA 2048."""
    pin: str
    late_pin: str

    def at(self, port: int, host: str = "127.0.0.1") -> str:
        return f"{host}:{port}"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    root = issued.Issued("Test Root", authority=True)
    middle = issued.Issued("Test Intermediate", root, authority=True)
    leaf = issued.Issued("broker", middle, hosts=issued.HERE, usage=issued.SERVER)
    late = issued.Issued("broker", root, hosts=["localhost"], days=(-20, -2))
    client = issued.Issued("board-1", root, usage=issued.CLIENT)
    heavy = issued.Issued("board-2", root, usage=issued.CLIENT, kind="RSA 2048")
    stranger = issued.Issued("Another Root", authority=True)
    ca, _ = root.write(folder, "root")
    other, _ = stranger.write(folder, "other")
    cert, key = client.write(folder, "client")
    _, leaf_key = leaf.write(folder, "leaf")
    late_cert, late_key = late.write(folder, "late")
    served = folder / "served.pem"
    served.write_bytes(leaf.pem + middle.pem)
    chain = folder / "chain.pem"
    chain.write_bytes(middle.pem + root.pem)
    lines = []
    free = [ports.free_port() for _ in range(4)]
    extras = ("", f"require_certificate true\ncafile {ca}", "tls_version tlsv1.3", "")
    for number, (port, extra) in enumerate(zip(free, extras, strict=True)):
        files = (late_cert, late_key) if number == 3 else (served, leaf_key)
        lines.append(
            f"listener {port} 127.0.0.1\ncertfile {files[0]}\nkeyfile {files[1]}\n{extra}"
        )
    with broker.mosquitto(extra="\n".join(lines)) as running:
        yield Guarded(
            running, *free, ca, other, chain, cert, key, heavy.write(folder, "heavy"),
            leaf.pin, late.pin,
        )  # fmt: skip
