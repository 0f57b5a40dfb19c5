"""The proof can fail: each of its ways sees what is put into a copy of the client."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import on_device
from flatmq_tools import bytecode


class Spoiled(NamedTuple):
    """Lines that go before a line of the client, and which ways are to see them."""

    module: str
    line: str
    added: str
    asked: bool
    kept: bool
    refused: bool


PUBLISH = "        if self.end + _len(topic)"  # the first line of Session.publish_qos0
RECEIVE = "        m = self.message\n        # Two bytes behind"  # and of Router.publish
BYTES = '_ = b"x" + bytes(1)\n'
EXCEPTION = """try:
            None.x
        except AttributeError:
            pass
"""
FRAME = "a = b = c = d = e = f = g = h = i = j = k = 0\n"

SPOILED = {
    "nothing": Spoiled("session", PUBLISH, "\n", asked=False, kept=False, refused=False),
    "bytes": Spoiled("session", PUBLISH, BYTES, asked=True, kept=True, refused=True),
    "exception": Spoiled("session", PUBLISH, EXCEPTION, asked=True, kept=True, refused=False),
    "frame": Spoiled("session", PUBLISH, FRAME, asked=True, kept=False, refused=False),
    "bytes in": Spoiled("router", RECEIVE, BYTES, asked=True, kept=True, refused=True),
    "frame in": Spoiled("router", RECEIVE, FRAME, asked=True, kept=False, refused=False),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_allocates_is_seen(what: str, tmp_path: Path) -> None:
    spoiled = SPOILED[what]
    sources = shutil.copytree(bytecode.SOURCES, tmp_path / "sources")
    module = sources / f"{spoiled.module}.py"
    source = module.read_text()
    assert source.count(spoiled.line) == 1
    indented = " " * 8 + spoiled.added + spoiled.line
    module.write_text(source.replace(spoiled.line, indented))
    client = bytecode.compiled(tmp_path / "compiled", sources)

    operation = "publishing" if spoiled.module == "session" else "receiving"
    seen = on_device.proof(operation, "qos0", client=client)
    ways = (seen.asked > 0, seen.kept > 0, seen.refused)
    assert ways == (spoiled.asked, spoiled.kept, spoiled.refused), seen
