"""The client as the type checker of somebody else's project sees it."""

import os
import sys
from pathlib import Path

from conftest import LIB, ran

PATIENCE = 120.0  # seconds that a check may take


def _check(folder: Path, source: str) -> str:
    """Return what mypy says of a program that imports flatmq as an installed package."""
    packages = folder / "site-packages"
    packages.mkdir()
    (packages / "flatmq").symlink_to(LIB / "flatmq")
    (folder / "program.py").write_text(source)
    settings = folder / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n")
    done = ran(
        [sys.executable, "-m", "mypy", "--config-file", str(settings), "program.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(packages)},
        timeout=PATIENCE,
    )
    return done.stdout


def test_a_program_is_checked_against_the_client(tmp_path: Path) -> None:
    source = """\
from flatmq import Client
from flatmq.message import Message
from flatmq.port import ticks_ms

def take(message: Message) -> None:
    reveal_type(message.payload)

client = Client("desk", "127.0.0.1", keepalive=30)
client.subscribe(b"a/#", take, qos=1)
reveal_type(client.publish(b"a", "text", 1))
reveal_type(ticks_ms())
client.publish(b"a", 21.5)
client.subscribe(b"a", qos=1)
"""
    told = [
        line.partition(": ")[2]
        for line in _check(tmp_path, source).splitlines()
        if line.startswith("program.py:")
    ]
    assert [line for line in told if "Revealed" in line] == [
        'note: Revealed type is "bytes"',
        'note: Revealed type is "int | None"',
        'note: Revealed type is "int"',
    ]
    errors = [line for line in told if line.startswith("error")]
    assert len(errors) == 2
    assert 'Argument 2 to "publish" of "Client" has incompatible type "float"' in errors[0]
    assert "Too few arguments" in errors[1]


def test_the_stub_of_port_tells_what_is_there() -> None:
    """mypy's own comparison of a stub with the module that it is for."""
    done = ran(
        [sys.executable, "-m", "mypy.stubtest", "--concise", "flatmq.port"],
        env={**os.environ, "MYPYPATH": str(LIB), "PYTHONPATH": str(LIB)},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
