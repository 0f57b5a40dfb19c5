"""The proof can fail: each of its ways sees what is put into a copy of the client."""

import ast
import shutil
from pathlib import Path

import pytest

from device import on_device
from flatmq_tools import bytecode

# A method of the client, and an operation that goes through it with the version of MQTT.
SEND = ("__init__.Client.publish", ("publishing", "qos0", 4))
WORK = ("engine.engine.while", ("receiving", "qos0", 4))
RECEIVE_5 = ("v5/carry.route", ("receiving", "qos0", "5+"))
ANSWER_5 = ("v5/acks.acknowledge", ("v5_answers", "puback_in_each_form", 5))
BYTES = '_ = b"x" + bytes(1)'
EXCEPTION = "try: None.x\nexcept AttributeError: pass"
FRAME = "aa = bb = cc = dd = ee = ff = gg = hh = ii = jj = kk = 0"

# What a method begins with, and whether that is seen as asked, kept and refused.
SPOILED = {
    "nothing": (SEND, "", (False, False, False)),
    "bytes": (SEND, BYTES, (True, True, True)),
    "bytes at work": (WORK, BYTES, (True, True, True)),
    "exception at work": (WORK, EXCEPTION, (True, True, False)),
    "bytes in at 5": (RECEIVE_5, BYTES, (True, True, True)),
    "frame in properties": (RECEIVE_5, FRAME, (True, False, False)),
    "exception in PUBACK": (ANSWER_5, EXCEPTION, (True, True, False)),
}


def _spoil(sources: Path, method: str, added: str) -> None:
    """Have a method, "module.Class.name", of the client in a folder begin with other lines.

    With ".while" behind it, its first outermost loop begins with them.
    """
    module, *names = method.split(".")
    path = sources / f"{module}.py"
    tree = ast.parse(path.read_text())
    body = tree.body
    found: ast.AST = tree
    for name in names:
        if name == "while":
            found = next(node for node in ast.walk(found) if isinstance(node, ast.While))
            body = found.body
            continue
        [found] = (node for node in body if getattr(node, "name", None) == name)
        body = found.body  # type: ignore[attr-defined]
    body[0:0] = ast.parse(added).body
    path.write_text(ast.unparse(tree))


@pytest.mark.parametrize("what", SPOILED)
def test_what_allocates_is_seen(what: str, tmp_path: Path) -> None:
    (method, (module, name, version)), added, ways = SPOILED[what]
    sources = shutil.copytree(bytecode.SOURCES, tmp_path / "sources")
    _spoil(sources, method, added)
    client = bytecode.compiled(tmp_path / "compiled", sources)
    seen = on_device.proof(module, name, client=client, version=version)
    assert (seen.asked > 0, seen.kept > 0, seen.refused) == ways, seen
