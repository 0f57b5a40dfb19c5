"""Run the operations in a MicroPython interpreter with a small heap, from .mpy as on a board."""

import ast
import functools
import tempfile
from pathlib import Path
from typing import NamedTuple

from conftest import seen
from flatmq_tools import broker, bytecode

HERE = Path(__file__).parent

# Of a 64-bit interpreter, where objects are twice as large as on a board.
HEAP = "48k"  # for the client and a sketch
PROOF_HEAP = "80k"  # with proof.py, and the operations over sockets
SCRIPTED_HEAP = "96k"  # with the scripted peer too, and its longer lists of operations
HEAPS = {"sockets": PROOF_HEAP, "home_assistant": "128k"}
MORE_OF_5 = 32  # KB more of these at MQTT 5, whose modules come on top

DEADLINE = 60  # seconds until an interpreter is ended from outside


class Seen(NamedTuple):
    """The report of proof.py on an operation."""

    asked: int  # bytes of heap that were asked for
    kept: int  # bytes that were in use afterwards
    refused: bool  # whether it failed with the heap locked


NOTHING = Seen(asked=0, kept=0, refused=False)


def operations(module: str) -> list[str]:
    """The operations of a module: its public functions."""
    tree = ast.parse((HERE / "operations" / f"{module}.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


@functools.cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """A folder with all that is imported, removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="flatmq-device-")
    bytecode.compiled(Path(folder.name))
    names = (
        "proof",
        "packets",
        "scripted_link",
        "scripted_bridge",
        "reader",
        "nodelay",
        "little_memory",
    )
    helpers = [HERE / f"{name}.py" for name in names]
    for source in [*helpers, *(HERE / "operations").glob("*.py")]:
        bytecode.compile_module(source, Path(folder.name, f"{source.stem}.mpy"), source.name)
    return folder


def made() -> Path:
    """The folder with the client, the operations and their helpers as .mpy."""
    return Path(_made().name)


def run(
    program: str | Path,
    *arguments: str,
    heap: str,
    before: Path | None = None,
    timeout: float = DEADLINE,
) -> list[str]:
    """Return what a program, of this folder if it is no path, has seen: see `seen`.

    The modules in the folder `before` take precedence over those in `made`.
    """
    folders = [*([before] if before else []), made()]
    return seen(heap, HERE / program, *arguments, folders=folders, timeout=timeout)


def _run_operation(
    module: str,
    name: str,
    steps: int,
    peer: broker.Broker | None,
    version: int | str,
    before: Path | None = None,
) -> list[str]:
    address = (peer.host, str(peer.port)) if peer else ()
    heap = HEAPS.get(module, SCRIPTED_HEAP)
    if version != 4:
        heap = f"{int(heap[:-1]) + MORE_OF_5}k"
    arguments = (module, name, str(steps), str(version), *address)
    return run("run_operation.py", *arguments, heap=heap, before=before)


def proof(
    module: str,
    name: str,
    peer: broker.Broker | None = None,
    client: Path | None = None,
    version: int | str = 4,
) -> Seen:
    """Return what an operation allocates when it is repeated.

    `client` is a folder with a flatmq that is not the one in this repository; `version` is that
    of MQTT, 4 or 5, or "5+" for messages with properties.
    """
    asked, kept, refused = _run_operation(module, name, 0, peer, version, client)
    return Seen(int(asked), int(kept), refused == "1")


def growth(
    module: str, name: str, steps: int, peer: broker.Broker | None = None, version: int = 4
) -> int:
    """Bytes that the heap holds more after so many steps of an operation."""
    return int(_run_operation(module, name, steps, peer, version)[0])
