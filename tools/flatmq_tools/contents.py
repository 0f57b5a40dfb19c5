"""The files on a board, with their paths and their bytes.

The client goes to /lib/flatmq, what the sketch uses of the shared parts to /lib, the sketch to /,
its settings to /settings.json. The face of umqtt comes only with a sketch that imports it. All but
main.py is compiled: MicroPython runs main.py as source only, and imports .mpy from anywhere.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from . import bytecode, folders
from .errors import ToolError

SKETCHES = folders.find("boards")
SHARED = "shared"
_FACE = "umqtt"  # modules for programs of umqtt, which other sketches have no use for
MAIN = "main.py"


def find_sketch(name: str, folder: Path = SKETCHES) -> Path:
    """The sketch's folder: a path to one, or the name of one in boards/. Raises ToolError."""
    for sketch in (Path(name), folder / name):
        if (sketch / MAIN).is_file():
            return sketch
    known = sorted(file.parent.name for file in folder.glob(f"*/{MAIN}"))
    raise ToolError(
        f"{name}: no sketch: neither it nor {folder / name} is a folder with a {MAIN}; "
        f"there are {', '.join(known)}"
    )


def contents(sketch: Path, settings: dict[str, Any], *, source: bool = False) -> dict[str, bytes]:
    """Path on the board -> bytes, in the order of the paths.

    sketch: a folder with a main.py; the shared parts are in the folder `shared` beside it, or in
    boards/shared. settings: what /settings.json says; none, no file. source: nothing is compiled.
    The same input gives the same bytes, wherever the folders are.
    Raises ToolError.
    """
    if not (sketch / MAIN).is_file():
        raise ToolError(f"{sketch}: no sketch: it has no {MAIN}")
    modules = {f"/{file.name}": file for file in sorted(sketch.glob("*.py"))}
    shared = _shared(sketch)
    for file in _used(list(modules.values()), shared):
        modules[f"/lib/{file.relative_to(shared).as_posix()}"] = file
    names = imported(sketch)
    has_face = any(name.startswith((_FACE, f"flatmq.{_FACE}")) for name in names)
    for file in sorted(bytecode.SOURCES.rglob("*.py")):
        wanted = has_face or not file.stem.startswith(_FACE)
        if wanted and file.stem not in bytecode.DESK_ONLY:
            modules[f"/lib/flatmq/{file.relative_to(bytecode.SOURCES).as_posix()}"] = file
    files: dict[str, bytes] = {}
    for path, file in modules.items():
        if source:
            files[path] = file.read_bytes()
            continue
        module = path.removeprefix("/lib").removeprefix("/")
        made = bytecode.mpy(file.read_text("utf-8"), module, module.startswith("flatmq/"))
        if module == MAIN:  # only for the errors that a board would find
            files[path] = file.read_bytes()
        else:
            files[path.removesuffix(".py") + ".mpy"] = made
    if settings:
        files["/settings.json"] = json.dumps(settings, indent=1).encode() + b"\n"
    return dict(sorted(files.items()))


def imported(sketch: Path) -> set[str]:
    """Return the names of all modules that a sketch and the shared parts it uses import.

    Raises ToolError.
    """
    own = sorted(sketch.glob("*.py"))
    return set().union(*map(_imports, [*own, *_used(own, _shared(sketch))]))


def _shared(sketch: Path) -> Path:
    beside = sketch.parent / SHARED
    return beside if beside.is_dir() else SKETCHES / SHARED


def _imports(file: Path) -> set[str]:
    """Every module that the file may import, wherever in it the statement stands."""
    try:
        tree = ast.parse(file.read_text("utf-8"))
    except SyntaxError as error:
        raise ToolError(f"{file}: line {error.lineno or 1}: {error.msg}") from error
    except ValueError as error:  # no UTF-8; until Python 3.11 also a null byte
        raise ToolError(f"{file}: {error}") from error
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _used(files: list[Path], shared: Path) -> list[Path]:
    """The shared modules that `files` import, and those that these do; a package as a whole."""
    own = {file.stem for file in files}
    used: set[Path] = set()
    waiting = list(files)
    while waiting:
        for name in _imports(waiting.pop()):
            first = name.partition(".")[0]
            if first in own:
                continue
            found = [shared / f"{first}.py", *(shared / first).rglob("*.py")]
            for file in found:
                if file.is_file() and file not in used:
                    used.add(file)
                    waiting.append(file)
    return sorted(used)
