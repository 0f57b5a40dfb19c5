"""Write what `mip install` reads: a JSON file for each part of flatmq, which lists its files.

A checkout has the lists of the sources, for who installs from GitHub. `make tools` and a release
write a folder with the .mpy files and their lists: with them a board compiles nothing, and holds
less.

A package lists every file that it needs, those of the core too: mip takes `deps` from an index or
a full URL, and neither is the same for a checkout, a fork and a release. Paths are relative to the
JSON file and go down only, because GitHub does not resolve "..".
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import flatmq
from flatmq import methods
from flatmq_tools import bytecode

ROOT = Path(__file__).parents[2]
PARTS: dict[str, tuple[str, ...]] = {
    "package": (
        "every",
        *(home.replace(".", "/") for home in {*methods.modules().values()} - {"rare.handover"}),
    ),
    "spool": ("spool", "rare/handover"),
    "crashes": ("crash", "log", "timesync"),
    "ha": ("ha",),
    "senml": ("senml",),
    "serial": ("stream_uart",),
    "tls": ("stream_tls", "stream_tls_board"),
    "aio": ("aio",),
    "umqtt": ("umqtt", "umqtt_robust"),
    "websocket": ("stream_websocket",),
    "sas": ("sas",),
    "mqtt5": (
        *("v5/__init__", "properties", "rare/parts"),
        *(
            home.replace(".", "/")
            for home in {*methods.modules(True).values()} - {*methods.modules().values()}
        ),
    ),
}
"""For each JSON file, the modules that a program imports besides `flatmq` itself. The modules that
these import are found. One that is imported by a computed name must be listed here."""


@functools.cache
def imports(source: str, module: str = "__init__") -> set[str]:
    """Return what a module imports from the package, in functions and by `load`, too.

    Each is a path with its last part being a module or a name in it, such as "engine/run".
    """
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        found.update(_imported(node, module))
        waiting += ast.iter_child_nodes(node)
    return found


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = ["flatmq", *module.split("/")][: -node.level] if node.level else []
        base = [*base, *(node.module or "").split(".")]
        names = [[*(each for each in base if each), alias.name] for alias in node.names]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load" and node.args:
        name = node.args[0]
        folder = str(ast.literal_eval(node.args[1])) if node.args[1:] else "rare."
        dotted = f"flatmq.{folder}{name.value!s}" if isinstance(name, ast.Constant) else ""
        names = [dotted.split(".")]
    else:
        return
    for first, *rest in names:
        if first == "flatmq":
            yield "/".join(rest) or "__init__"


def modules(part: str, sources: Path = bytecode.SOURCES) -> list[str]:
    """The modules of a part and all that they import, sorted; none of those for the desk alone."""
    return needed(PARTS[part], sources)


def needed(names: Iterable[str], sources: Path = bytecode.SOURCES) -> list[str]:
    """The same for modules of these names, such as "ota/__init__"."""
    found: set[str] = set()
    waiting = {"__init__", *PARTS["package"], *names}
    while waiting:
        module = waiting.pop()
        found.add(module)
        for name in imports((sources / f"{module}.py").read_text(encoding="utf-8"), module):
            # A module, or something in a module or in the __init__.py of a package.
            folders = [str(folder) for folder in Path(name).parents][:-1]
            named = {name, *folders, *(f"{folder}/__init__" for folder in folders)}
            there = {each for each in named if (sources / f"{each}.py").is_file()}
            waiting |= {each for each in there if Path(each).name not in bytecode.DESK_ONLY}
        waiting -= found
    return sorted(found)


def path(part: str, root: Path = ROOT) -> Path:
    """The JSON file of a part in a checkout: package.json at the top, the others in lib."""
    return root / "package.json" if part == "package" else root / "lib" / f"{part}.json"


def document(part: str, folder: str = "", suffix: str = "py") -> str:
    """The text of the JSON file of a part; its files are in `folder`, relative to it.

    Without a folder, they are where `path` puts the JSON file of a checkout.
    """
    folder = folder or ("lib/flatmq" if part == "package" else "flatmq")
    urls = [
        (f"flatmq/{module}.{suffix}", f"{folder}/{module}.{suffix}") for module in modules(part)
    ]
    name = "flatmq" if part == "package" else f"flatmq-{part}"
    package = {"name": name, "version": flatmq.__version__, "urls": urls, "deps": []}
    return json.dumps(package, separators=(",", ":")) + "\n"


def write(root: Path = ROOT) -> None:
    """Write the JSON files of the sources."""
    for part in PARTS:
        path(part, root).write_text(document(part), encoding="utf-8")


def compiled(folder: Path) -> None:
    """Compile all parts into a folder, and write their JSON files beside them.

    What was compiled before is removed. Raises ToolError.
    """
    for old in (*folder.rglob("*.mpy"), *folder.glob("*.json")):
        old.unlink()
    bytecode.compiled(folder)
    for part in PARTS:
        text = document(part, "flatmq", "mpy")
        (folder / f"{part}.json").write_text(text, encoding="utf-8")


def release(into: Path) -> Path:
    """Do the same in the folder mpyN, N being the version of the .mpy format, and return that."""
    folder = into / f"mpy{bytecode.mpy('', 'empty.py')[1]}"
    compiled(folder)
    return folder
