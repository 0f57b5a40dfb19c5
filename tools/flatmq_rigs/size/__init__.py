"""`python -m flatmq_rigs size`: the memory that a client holds, and the time of its start."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from flatmq_rigs import packages, results, webassembly
from flatmq_rigs.bench.peers import PeerError, umqtt_simple
from flatmq_rigs.size import rows, scales
from flatmq_rigs.size.scales import Start, Weight
from flatmq_tools import interpreter
from flatmq_tools.bytecode import compile_module, compiled
from flatmq_tools.contents import SHARED, SKETCHES

_PEER = Path(__file__).with_name("peer.py")
_SIMPLE = "umqtt.simple"
_PARTS = {**packages.PARTS, "updates and prompt": ("ota/__init__", "prompt")}


@dataclass
class Sizes:
    """The measured weights by row, the starts by client, and the bytes of files by package."""

    weights: dict[str, Weight] = field(default_factory=dict)
    umqtt: dict[str, Weight] = field(default_factory=dict)
    starts: dict[str, Start] = field(default_factory=dict)
    flash: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is missing, and why

    def over(self) -> Iterator[str]:
        """Say which bounds are exceeded."""
        for name, weight in self.weights.items():
            bound = rows.ROWS[name].bound
            if bound is not None and weight.held > bound:
                yield f"{name}: {weight.held:,} bytes, more than {bound:,}"
        start = self.starts.get("flatmq")
        if start and start.loads > rows.BOUND_LOADS:
            yield f"start: {start.loads:.1f} loads, more than {rows.BOUND_LOADS:.1f}"


def measure(build: Path = Path("build"), peers: bool = True) -> Sizes:
    """Measure everything that can be measured here; `peers` includes umqtt.simple."""
    sizes = Sizes()
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        library = compiled(Path(name, "library"))
        for part, named in _PARTS.items():
            files = [library / "flatmq" / f"{each}.mpy" for each in packages.needed(named)]
            sizes.flash[part] = sum(file.stat().st_size for file in files)
        harness, other = Path(name, "harness"), Path(name, "other")
        for source in (_PEER, SKETCHES / SHARED / "slots.py"):
            compile_module(source, harness / f"{source.stem}.mpy", source.name)
        if peers:
            try:
                source = umqtt_simple(build)
            except PeerError as error:
                peers = False
                sizes.notes.append(f"{_SIMPLE}: {error}")
            else:
                compile_module(source, other / "umqtt" / "simple.mpy", "umqtt/simple.py")
        if webassembly.find() is None:
            sizes.notes.append(webassembly.MISSING)
        else:
            for path in rows.PATHS:
                sizes.weights.update(scales.weigh(path, library, harness))
            if peers:
                sizes.umqtt = scales.weigh(rows.UMQTT, other, harness)
        if interpreter.find() is None:
            sizes.notes.append(interpreter.MISSING)
        else:
            sizes.starts["flatmq"] = scales.time_start(rows.START, library, harness)
            if peers:
                sizes.starts[_SIMPLE] = scales.time_start(rows.UMQTT_START, other, harness)
    return sizes


def _held(sizes: Sizes) -> str:
    lines = []
    for row in rows.ROWS.values():
        sign = "+" if row.more else ""
        held, peer = sizes.weights.get(row.name), sizes.umqtt.get(row.name)
        figures = [held and held.held, row.bound, row.asked, peer and peer.held]
        cells = [results.NONE if each is None else f"{sign}{each:,}" for each in figures]
        lines.append([row.name, *cells])
    return results.table(["state", "flatmq", "bound", "asked", _SIMPLE], lines)


def _starts(sizes: Sizes) -> str:
    head = ["client", "import, ms", "import to CONNECT sent, ms", "loads", "bound", "asked"]
    lines = []
    for name, start in sizes.starts.items():
        figures = [f"{start.imported:.2f}", f"{start.sent:.2f}", f"{start.loads:.1f}"]
        bounds = [f"{rows.BOUND_LOADS:.1f}", f"{rows.ASKED_LOADS:.1f}"]
        lines.append([name, *figures, *(bounds if name == "flatmq" else [results.NONE] * 2)])
    return results.table(head, lines)


def _flash(sizes: Sizes) -> str:
    core = sizes.flash.get("package", 0)
    lines = [
        [name.replace("package", "the client"), f"{n:,}", f"+{n - core:,}" if n > core else ""]
        for name, n in sizes.flash.items()
    ]
    return results.table(["package", "bytes of flash", "more than the client"], lines)


def _text(sizes: Sizes) -> str:
    parts = [
        "## Where the memory goes",
        "`make size`: bytes of heap held after a collection, on 32 bits, from .mpy files, with "
        "default sizes and the TCP link. A figure with + is the growth since the state before. "
        "Tests fail above the bound. With TLS, most boards hold "
        f"{rows.MBED_TLS:,} bytes more, for Mbed TLS.",
        _held(sizes),
        "### Flash",
        "The .mpy files of each package that `mip` installs, each with the client. An image has "
        "the updates.",
        _flash(sizes),
        "### Time of a start",
        _starts(sizes),
        *sizes.notes,
    ]
    return "\n\n".join(parts)


def main(document: Path | None = None, build: Path = Path("build")) -> int:
    """Print what a client holds, and put it into `document`; return 0."""
    sizes = measure(build)
    text = _text(sizes)
    Console().print(Markdown(text))
    for note in sizes.notes:
        print(f"not measured: {note}")
    for line in sizes.over():
        print(f"over its bound: {line}")
    if document:
        results.write(document, "size", text)
    return 0
