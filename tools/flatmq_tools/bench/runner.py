"""Runs one device script for one client and returns what it measured."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from flatmq_tools.bench.clients import CPYTHON, MICROPYTHON, Client
from flatmq_tools.bench.peers import fetch

DEVICE = Path(__file__).parent / "device"
HEAP_KB = 256  # as much as a roomy board has
ALLOC_HEAP_KB = 4096  # garbage is counted with the collector off
_MARK = "RESULT "
_FROZEN = ".frozen"


class Failed(RuntimeError):
    """A client could not be measured; the text is its last words."""


class Runner:
    """Knows where the interpreter, the libraries and the peers are."""

    def __init__(self, interpreter: str, build: Path, timeout: float = 60) -> None:
        self._interpreter = interpreter
        self._build = build
        self._timeout = timeout
        self._paths: dict[str, list[Path]] = {}
        self._images: dict[str, Path] = {}
        self._numbers = itertools.count(1)

    def prepare(self, client: Client) -> None:
        """Puts the client's modules where `run` looks; PeerError when they cannot be had."""
        if client.module == "flatmq":
            library = self._copy_flatmq()
            if client.romfs:
                self._images[client.key] = _romfs(library, self._build)
                self._paths[client.key] = []
            else:
                self._paths[client.key] = [library]
            return
        paths = []
        if client.shims:
            paths.append(DEVICE / "shims" / client.shims)
        if client.sdists or client.wheels:
            cache = self._build / "peers"
            paths.append(fetch(cache, client.module, client.sdists, client.wheels))
        self._paths[client.key] = paths

    def _copy_flatmq(self) -> Path:
        """A folder that holds the package flatmq and nothing else."""
        import flatmq

        library = self._build / "bench" / "lib"
        shutil.rmtree(library, ignore_errors=True)
        shutil.copytree(
            Path(flatmq.__file__).parent,
            library / "flatmq",
            ignore=shutil.ignore_patterns("__pycache__", "*.pyi", "*.mpy"),
        )
        return library

    def new_id(self) -> str:
        """A client identifier that no other run has."""
        return f"bench{next(self._numbers)}"

    def measure(
        self, client: Client, figure: str, port: int, argument: str = "", identifier: str = ""
    ) -> Any:
        """The value that `device/measure.py` printed; None when the client has no such call."""
        if client.romfs:
            argument = str(self._images[client.key])
        heap_kb = ALLOC_HEAP_KB if figure == "alloc" else HEAP_KB
        arguments = ["measure.py", client.module, figure, str(port), identifier or self.new_id()]
        return self._run(client, [*arguments, argument] if argument else arguments, heap_kb)

    def fits(self, client: Client, port: int, heap_kb: int) -> bool:
        """Whether connect, subscribe, publish and receive work in a heap of so many KB."""
        arguments = ["smallest.py", client.module, str(port), self.new_id()]
        if client.romfs:
            arguments.append(str(self._images[client.key]))
        try:
            return bool(self._run(client, arguments, heap_kb, timeout=8) == 1)
        except Failed:
            return False

    def _run(
        self, client: Client, arguments: list[str], heap_kb: int, timeout: float | None = None
    ) -> Any:
        paths = [str(path) for path in self._paths[client.key]]
        if client.runtime == MICROPYTHON:
            command = [self._interpreter, "-X", f"heapsize={heap_kb}k"]
            environment = {"MICROPYPATH": os.pathsep.join([_FROZEN, *paths])}
        else:
            assert client.runtime == CPYTHON
            command = [sys.executable]
            environment = {"PYTHONPATH": os.pathsep.join(paths)}
        command += [str(DEVICE / arguments[0]), *arguments[1:]]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout or self._timeout,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no result within {timeout or self._timeout:.0f} s") from None
        lines = done.stdout.splitlines()
        if done.returncode == 0 and lines and lines[-1].startswith(_MARK):
            return json.loads(lines[-1].removeprefix(_MARK))
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(words[-1] if words else f"exit status {done.returncode}")


def _romfs(library: Path, build: Path) -> Path:
    """A ROMFS image of the library, compiled by mpy-cross."""
    image = build / "bench" / "flatmq.romfs"
    done = subprocess.run(
        [
            sys.executable, "-m", "mpremote", "romfs",
            "--output", str(image), "build", str(library),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode or not image.is_file():
        raise Failed(f"mpremote could not build the ROMFS image: {done.stderr.strip()}")
    return image
