"""Run a 32-bit MicroPython on this machine: the port to WebAssembly, under node.

It loads .mpy files as a board does. It has no sockets and no ROMFS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from flatmq_tools.interpreter import InterpreterError

MISSING = (
    "no 32-bit MicroPython: `make wasm` installs it into .venv; it needs node, npm and a network"
)
COLLECT = "import gc; gc.collect()"  # a part that is run to have garbage collected after it
_PACKAGE = Path("node_modules", "@micropython", "micropython-webassembly-pyscript")
_RUN = Path(__file__).with_suffix(".mjs")


def find() -> Path | None:
    """Return the interpreter's module, or None when it or node is missing.

    It is looked for in the folder $MICROPYTHON_WASM, else in `wasm` below this virtual
    environment; npm has installed the package there.
    """
    folder = Path(os.environ.get("MICROPYTHON_WASM") or Path(sys.prefix, "wasm"))
    module = folder / _PACKAGE / "micropython.mjs"
    return module if module.is_file() and shutil.which("node") else None


def run(
    parts: Sequence[str],
    folders: Mapping[str, Path],
    heap_kb: int = 256,
    timeout: float = 120,
) -> list[str]:
    """Run each part in the same interpreter and return the lines that they print.

    `folders` maps paths inside the interpreter to folders that are copied there. Garbage is
    collected only after a part that called gc.collect(). Raises InterpreterError.
    """
    module = find()
    if module is None:
        raise InterpreterError(MISSING)
    job = {
        "module": str(module),
        "heap": heap_kb * 1024,
        "folders": {inside: str(here) for inside, here in folders.items()},
        "parts": list(parts),
    }
    with tempfile.TemporaryDirectory(prefix="flatmq-wasm-") as name:
        file = Path(name, "job.json")
        file.write_text(json.dumps(job), encoding="utf-8")
        try:
            done = subprocess.run(
                ["node", str(_RUN), str(file)],
                capture_output=True, text=True, timeout=timeout, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InterpreterError(f"no result within {timeout:.0f} s") from None
    if done.returncode:
        raise InterpreterError(done.stderr.strip() or f"exit status {done.returncode}")
    return done.stdout.splitlines()
