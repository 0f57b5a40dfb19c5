"""The interpreters that weigh: MicroPython here, 64-bit, and for WebAssembly, 32-bit."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from flatmq_rigs import webassembly
from flatmq_rigs.size.steps import PEER
from flatmq_tools import interpreter
from flatmq_tools.image import romfs

_RUNS = 3  # on 64 bits a stale word on the stack may keep garbage alive: the least counts
_HELD = "@held"
BROKEN = "@broken"  # a module that does not load, and why
_DRIVER = """
import gc, sys
_parts = {parts!r}
for _part in _parts:
    exec(_part)
    gc.collect()
    gc.collect()
    print({mark!r}, gc.mem_alloc())
"""
_MOUNT = """
import vfs
with open({image!r}, "rb") as _file:
    _image = _file.read()
vfs.mount(vfs.VfsRom(_image), "/rom")
"""


class SizeError(RuntimeError):
    """The code to measure does not run; the text says why."""


class Scales:
    """A pair of scales for Python code, part by part, after a prelude that is not charged.

    `library` and `harness` are folders to import from.
    """

    title = ""
    missing = ""  # why there is none

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}  # modules that did not load, and why

    def lines(self, library: Path, harness: Path, parts: Sequence[str]) -> list[str]:
        """Return what the parts print, and after each of them a line with the heap held."""
        raise NotImplementedError

    def held(
        self, library: Path, harness: Path, prelude: str, steps: Mapping[str, str]
    ) -> dict[str, int]:
        """Return the bytes of heap held after each step since the prelude.

        Returns {} without an interpreter.
        """
        if self.missing:
            return {}
        lines = self.lines(library, harness, [prelude, *steps.values()])
        for line in lines:
            if line.startswith(BROKEN):
                _, name, why = line.split(" ", 2)
                self.broken[name] = why
        figures = [int(line.split()[1]) for line in lines if line.startswith(_HELD)]
        found = {}
        nobody, before = figures[0], figures[0]
        for name, figure in zip(steps, figures[1:], strict=True):
            if name == PEER:
                nobody += figure - before
            else:
                found[name] = figure - nobody
            before = figure
        return found


class Wide(Scales):
    """The 64-bit interpreter of this machine."""

    title = "64-bit"

    def __init__(self) -> None:
        super().__init__()
        if interpreter.find() is None:
            self.missing = interpreter.MISSING

    def _mount(self, library: Path, folder: Path) -> tuple[str, str]:
        """Code that is run first, and the path to import the library from."""
        return "", str(library)

    def _run(self, library: Path, harness: Path, parts: Sequence[str]) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
            first, path = self._mount(library, Path(name))
            first += f"import sys\nROOT = {path!r}\nsys.path[:] = [ROOT, {str(harness)!r}]\n"
            script = Path(name, "weigh.py")
            script.write_text(
                _DRIVER.format(parts=[first + parts[0], *parts[1:]], mark=_HELD), encoding="utf-8"
            )
            done = subprocess.run(
                [*(interpreter.command("512k") or []), str(script)],
                capture_output=True, text=True, timeout=60, check=False,
                env=interpreter.environment(),
            )  # fmt: skip
        if done.returncode:
            raise SizeError(interpreter.last_words(done))
        return done.stdout.splitlines()

    def lines(self, library: Path, harness: Path, parts: Sequence[str]) -> list[str]:
        """The run with the least at the end."""
        runs = [self._run(library, harness, parts) for _ in range(_RUNS)]
        return [min(same, key=_figure) for same in zip(*runs, strict=True)]


class InPlace(Wide):
    """The same, with the library in a ROMFS, whose bytecode and names are not copied."""

    title = "64-bit, from ROMFS"

    def __init__(self) -> None:
        super().__init__()
        self._images: dict[Path, bytes] = {}  # by library: building one takes longer than weighing

    def _mount(self, library: Path, folder: Path) -> tuple[str, str]:
        image = folder / "library.romfs"
        if library not in self._images:
            files = {str(p.relative_to(library)): p.read_bytes() for p in library.rglob("*.mpy")}
            self._images[library] = romfs.build(files)
        image.write_bytes(self._images[library])
        return _MOUNT.format(image=str(image)), "/rom"


class Narrow(Scales):
    """The 32-bit interpreter."""

    title = "32-bit"

    def __init__(self) -> None:
        super().__init__()
        if webassembly.find() is None:
            self.missing = webassembly.MISSING

    def lines(self, library: Path, harness: Path, parts: Sequence[str]) -> list[str]:
        """Run it once: the collector is exact here."""
        first = "import sys\nROOT = '/library'\nsys.path[:] = [ROOT, '/harness']\n"
        weighed = [webassembly.COLLECT, webassembly.COLLECT, f"print({_HELD!r}, gc.mem_alloc())"]
        all_parts = [part for p in (first + parts[0], *parts[1:]) for part in (p, *weighed)]
        try:
            return webassembly.run(all_parts, {"/library": library, "/harness": harness})
        except webassembly.WebAssemblyError as error:
            raise SizeError(str(error)) from error


def _figure(line: str) -> int:
    return int(line.split()[1]) if line.startswith(_HELD) else 0
