"""Check the types of the project, and of the client and the sketches as each port sees them.

mypy checks what runs on CPython as pyproject.toml says. The folder of stubs has a folder for
each of the stub packages that the boards' files name, and micropython-unix-stubs. mypy checks
lib/flatmq and boards/ against each of them: a port's modules instead of CPython's, its builtins
instead of typeshed's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flatmq_tools import boards, bytecode

ROOT = Path(__file__).parents[2]
SKETCHES = ROOT / "boards"
SHARED = SKETCHES / "shared"
HOST = SKETCHES / "host"  # runs on the desk, in the unix port
EXAMPLES = ROOT / "examples"  # those for a board are for a Pico W
UNIX = "micropython-unix-stubs"
DESK = "CPython"

# The stubs themselves have errors, which are theirs.
_CONFIG = """\
[mypy]
python_version = 3.10
platform = linux
explicit_package_bases = True
always_true = MICROPYTHON
check_untyped_defs = True
warn_unused_ignores = True
warn_redundant_casts = True
custom_typeshed_dir = {stubs}
mypy_path = {path}
cache_dir = {cache}
[mypy-{theirs}]
ignore_errors = True
"""


def client() -> list[Path]:
    """The modules of the client that a board may load."""
    return [
        file
        for file in sorted(bytecode.SOURCES.rglob("*.py"))
        # port.pyi describes port.py: see there.
        if file.stem not in (*bytecode.DESK_ONLY, "port")
    ]


def sketches(port: str, known: list[boards.Board]) -> list[Path]:
    """Return what the boards of a port may load beside the client.

    Those are each sketch, the shared modules, except those whose names end in another port's,
    and the examples.
    """
    others = tuple(f"_{board.port}" for board in known if board.port != port)
    files = [file for file in sorted(SHARED.rglob("*.py")) if not file.stem.endswith(others)]
    for folder in sorted({board.sketch for board in known if board.port == port}):
        files += sorted((SKETCHES / folder).glob("*.py"))
    return [*files, *sorted(EXAMPLES.glob("*.py"))] if port == "rp2" else files


def start(stubs: Path, files: list[Path], folders: list[Path]) -> subprocess.Popen[str]:
    """mypy, on its way through the files, which import from the folders."""
    if not stubs.is_dir():
        raise FileNotFoundError(f"{stubs}: the stubs are missing: `make lint` installs them")
    names = {file.name.removesuffix(".pyi") for file in stubs.iterdir() if file.suffix != ".py"}
    theirs = ",".join(f"{name}.*" for name in sorted(names) if name.isidentifier())
    cache = ROOT / ".mypy_cache" / stubs.name
    cache.mkdir(parents=True, exist_ok=True)
    config = cache / "mypy.ini"
    path = ",".join(map(str, [*folders, stubs]))
    config.write_text(_CONFIG.format(stubs=stubs, path=path, cache=cache, theirs=theirs))
    return mypy("--config-file", str(config), *map(str, files))


def mypy(*arguments: str) -> subprocess.Popen[str]:
    """Start mypy in the checkout; without arguments as pyproject.toml says."""
    return subprocess.Popen(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def main(folder: Path) -> int:
    """Check the desk's code and every port's at once; 1 when mypy finds something."""
    known = [boards.load(name) for name in boards.names()]
    lib = bytecode.SOURCES.parent
    running = {DESK: mypy()}  # what takes longest
    running[UNIX] = start(folder / UNIX, [*client(), *sorted(HOST.glob("*.py"))], [lib, HOST])
    for port, stubs in sorted({(board.port, board.stubs) for board in known}):
        files = [*client(), *sketches(port, known)]
        running[stubs] = start(folder / stubs, files, [lib, SHARED, SKETCHES, EXAMPLES])
    bad = 0
    for stubs, process in running.items():
        told = process.communicate()[0].strip()
        bad |= process.returncode
        print(f"{stubs}: {told}")
    return 1 if bad else 0
