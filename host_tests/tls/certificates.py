"""The certificates of the tests with TLS, as files: in DER for boards, in PEM for the broker."""

from __future__ import annotations

from pathlib import Path

from certs.issued import HERE, Issued


def write(folder: Path) -> dict[str, str]:
    """Write all certificates into a folder; return the pin of each."""
    ca = Issued("flatmq test authority", authority=True)
    other = Issued("another authority", authority=True)
    issued = {
        "ca": ca,
        "other": other,
        "broker": Issued("localhost", ca, hosts=HERE),
        "expired": Issued("localhost", ca, hosts=HERE, days=(-30, -1)),
        "future": Issued("localhost", ca, hosts=HERE, days=(10, 30)),
        "own": Issued("localhost", hosts=HERE, authority=True),
        "named": Issued("broker.example", ca, hosts=["broker.example"]),
        "client": Issued("board", ca),
        "stranger": Issued("board", other),
    }
    for name, each in issued.items():
        each.write_for_board(folder, name)
    (folder / "broken.der").write_bytes(b"no certificate")
    return {name: each.pin for name, each in issued.items()}
