"""The proof can fail: each of its ways sees what is put into a copy of the client."""

import ast
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from device import on_device
from flatmq_tools import bytecode


class Spoiled(NamedTuple):
    """Lines that a method of the client begins with, and which ways are to see them."""

    method: str
    added: str
    asked: bool
    kept: bool
    refused: bool


SEND = "session.Session.publish"
RECEIVE = "router.Router.publish"
SEND_5 = "v5.Client5.publish"
RECEIVE_5 = "v5_router.Router5.publish"
WALK_5 = "v5_walk.View.find"
ANSWER_5 = "v5_connection.Connection5._long"
# Of each method: the operation that goes through it, and the version of MQTT.
THROUGH = {
    SEND: ("publishing", "qos0", 4),
    RECEIVE: ("receiving", "qos0", 4),
    SEND_5: ("publishing", "qos0", 5),
    RECEIVE_5: ("receiving", "qos0", 5),
    WALK_5: ("receiving", "qos0", "5+"),
    ANSWER_5: ("v5_answers", "puback_in_each_form", 5),
}
BYTES = '_ = b"x" + bytes(1)'
EXCEPTION = "try: None.x\nexcept AttributeError: pass"
FRAME = "a = b = c = d = e = f = g = h = i = j = k = 0"

SPOILED = {
    "nothing": Spoiled(SEND, "", asked=False, kept=False, refused=False),
    "bytes": Spoiled(SEND, BYTES, asked=True, kept=True, refused=True),
    "exception": Spoiled(SEND, EXCEPTION, asked=True, kept=True, refused=False),
    "frame": Spoiled(SEND, FRAME, asked=True, kept=False, refused=False),
    "bytes in": Spoiled(RECEIVE, BYTES, asked=True, kept=True, refused=True),
    "frame in": Spoiled(RECEIVE, FRAME, asked=True, kept=False, refused=False),
    "bytes at 5": Spoiled(SEND_5, BYTES, asked=True, kept=True, refused=True),
    "frame at 5": Spoiled(SEND_5, FRAME, asked=True, kept=False, refused=False),
    "bytes in at 5": Spoiled(RECEIVE_5, BYTES, asked=True, kept=True, refused=True),
    "frame in properties": Spoiled(WALK_5, FRAME, asked=True, kept=False, refused=False),
    "exception in PUBACK": Spoiled(ANSWER_5, EXCEPTION, asked=True, kept=True, refused=False),
}


def _spoil(sources: Path, method: str, added: str) -> None:
    """Have a method, "module.Class.name", of the client in a folder begin with other lines."""
    module, *names = method.split(".")
    path = sources / f"{module}.py"
    tree = ast.parse(path.read_text())
    body = tree.body
    for name in names:
        [found] = (node for node in body if getattr(node, "name", None) == name)
        body = found.body  # type: ignore[attr-defined]
    body[0:0] = ast.parse(added).body
    path.write_text(ast.unparse(tree))


@pytest.mark.parametrize("what", SPOILED)
def test_what_allocates_is_seen(what: str, tmp_path: Path) -> None:
    spoiled = SPOILED[what]
    sources = shutil.copytree(bytecode.SOURCES, tmp_path / "sources")
    _spoil(sources, spoiled.method, spoiled.added)
    client = bytecode.compiled(tmp_path / "compiled", sources)

    module, name, version = THROUGH[spoiled.method]
    seen = on_device.proof(module, name, client=client, version=version)
    ways = (seen.asked > 0, seen.kept > 0, seen.refused)
    assert ways == (spoiled.asked, spoiled.kept, spoiled.refused), seen
