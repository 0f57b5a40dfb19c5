"""`python -m flatmq_rigs size`: what the client takes on a board's flash, and of its memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from flatmq_rigs import packages, results
from flatmq_rigs.bench.clients import CLIENTS
from flatmq_rigs.bench.peers import PeerError, fetch
from flatmq_rigs.links import LINKS, Listening
from flatmq_rigs.size import modules, steps
from flatmq_rigs.size.committed import sealed
from flatmq_rigs.size.scales import BROKEN, InPlace, Narrow, Scales, SizeError, Wide
from flatmq_tools.bytecode import DESK_ONLY, SOURCES, compile_module, compiled

__all__ = ("SizeError", "Sizes", "main", "measure")

_HARNESS = Path(__file__).parents[1] / "bench" / "device" / "memory.py"
_UMQTT = next(client for client in CLIENTS if client.module == "umqtt_simple")
_TITLES = (Narrow.title, Wide.title, InPlace.title)
_FALLEN_BACK = "version=None, fallen back to 3.1.1, subscribed"
Columns = list[tuple[str, dict[str, int]]]  # title, and figures by row
_SUMS = ("to publish", "to receive", "together")
_CORE = "package"  # the part that all others contain
# Loaded by itself, with a package that loads nothing.
_PACKAGE = """
class package:
    __path__ = ROOT + "/flatmq"
sys.modules["flatmq"] = package
"""
# What `aio` builds on is not charged to it. The 32-bit interpreter has none.
_ASYNCIO = """
try:
    import asyncio
    asyncio.Event, asyncio.Lock
except ImportError:
    class asyncio:
        Event = object
        sleep_ms = None
    sys.modules["asyncio"] = asyncio
"""
_LOADED = "print('@loaded', *sorted(n[7:] for n in sys.modules if n[:7] == 'flatmq.'))"
_NO_STUBS = "del sys.modules['socket'], sys.modules['usocket']"


@dataclass
class Sizes:
    """The measured sizes, by the title of the interpreter, then by module or step."""

    groups: list[list[str]]  # modules to publish, more to receive, and those on request
    parts: dict[str, list[str]]  # those on request by the JSON file that installs them
    functions: dict[str, int]
    mpy: dict[str, int]
    modules: dict[str, dict[str, int]] = field(default_factory=dict)
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    steps_5: dict[str, dict[str, int]] = field(default_factory=dict)
    # Then by version of MQTT, and by feature.
    features: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    fallen_back: dict[str, int] = field(default_factory=dict)
    umqtt: dict[str, dict[str, int]] = field(default_factory=dict)
    links: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)  # then by link
    notes: list[str] = field(default_factory=list)  # what is missing, and why

    def over(self) -> list[str]:
        """Say which bounds are exceeded."""
        narrow = self.steps.get(Narrow.title, {})
        return [
            f"{step}: {narrow[step]:,} bytes on 32 bits, more than {bound:,}"
            for step, bound in steps.BOUNDS.items()
            if step in narrow and narrow[step] > bound
        ]


def _parts(modules_left: Iterable[str]) -> dict[str, list[str]]:
    """The modules by the part that they are installed with, each part in the order of loading."""
    left = set(modules_left)
    found = {}
    for part in packages.PARTS:
        group = left.intersection(packages.modules(part, SOURCES))
        found[part] = modules.in_order(SOURCES, group)
        left -= group
    found[_CORE] += modules.in_order(SOURCES, left)  # nothing, or what no part names yet
    return found


def _groups(
    scales: Scales, library: Path, harness: Path
) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Return the modules by who loads them, each group in the order of loading.

    The last group is also returned by part.
    """

    def loaded(*parts: str) -> set[str]:
        if scales.missing:
            return set()
        lines = scales.lines(library, harness, [*parts, _LOADED])
        return set(next(line for line in lines if line.startswith("@loaded")).split()[1:])

    publishing = {modules.INIT, *loaded(steps.PRELUDE, *steps.PUBLISHING.values())}
    if isinstance(scales, Wide):
        last = steps.PUBLISHING[steps.IMPORTED]
        publishing |= loaded(steps.PRELUDE + _NO_STUBS, last, steps.OVER_TCP)
    receiving = loaded(steps.PRELUDE, *steps.SUBSCRIBING.values()) - publishing
    rest = set(modules.names(SOURCES, DESK_ONLY)) - publishing - receiving
    parts = _parts(rest)
    first = [modules.in_order(SOURCES, group) for group in (publishing, receiving)]
    return [*first, [module for part in parts.values() for module in part]], parts


def _load(module: str) -> str:
    if module == modules.INIT:
        return "del sys.modules['flatmq']\nimport flatmq"
    return (
        f"try:\n import flatmq.{module}\n"
        f"except ImportError as error:\n print('{BROKEN} {module}', error)"
    )


def _differences(totals: dict[str, int]) -> dict[str, int]:
    before = 0
    found = {}
    for name, total in totals.items():
        found[name] = total - before
        before = total
    return found


def _weigh(sizes: Sizes, scales: Scales, library: Path, harness: Path) -> None:
    """Add the figures of one interpreter."""
    if scales.missing:
        if scales.missing not in sizes.notes:
            sizes.notes.append(scales.missing)
        return
    order = [name for group in sizes.groups for name in group]
    code = {name: _load(name) for name in order}
    totals = scales.held(library, harness, steps.PRELUDE + _PACKAGE + _ASYNCIO, code)
    sizes.modules[scales.title] = {
        name: n for name, n in _differences(totals).items() if name not in scales.broken
    }
    for name, why in scales.broken.items():
        note = f"{name} does not load: {why}"
        if note not in sizes.notes:
            sizes.notes.append(note)
    # The first steps of both paths are the same.
    sizes.steps[scales.title] = {
        **scales.held(library, harness, steps.PRELUDE, steps.PUBLISHING),
        **scales.held(library, harness, steps.PRELUDE, steps.SUBSCRIBING),
    }


def _weigh_mqtt_5(sizes: Sizes, scales: Scales, library: Path, harness: Path) -> None:
    """Add what a client holds at MQTT 5, and what each feature loads when it is used."""
    if scales.missing:
        return

    def held(path: dict[str, str]) -> dict[str, int]:
        return scales.held(library, harness, steps.PRELUDE, path)

    sizes.steps_5[scales.title] = {**held(steps.PUBLISHING_5), **held(steps.SUBSCRIBING_5)}
    for version in (4, 5):
        found = sizes.features.setdefault(scales.title, {})[version] = {}
        for name, path in steps.features(version).items():
            figures = held(path)
            found[name] = figures[steps.USED] - figures[steps.ONLINE]
    sizes.fallen_back[scales.title] = held(steps.FALLEN_BACK)[steps.ONLINE]


def _weigh_links(sizes: Sizes, weighing: Iterable[Scales], library: Path, harness: Path) -> None:
    """Add what a client holds over each link.

    The 32-bit interpreter has neither sockets nor TLS.
    """
    for link, (name, path) in zip(LINKS, steps.LINKS.items(), strict=True):
        with Listening(link) as listening:
            ca = Path(listening.ca).read_bytes() if listening.ca else b""
            prelude = steps.PRELUDE + steps.LINK_PRELUDE.format(port=listening.port, ca=ca)
            for scales in weighing:
                if not scales.missing:
                    held = scales.held(library, harness, prelude, path)
                    sizes.links.setdefault(scales.title, {})[name] = held


def _umqtt(build: Path, into: Path) -> Path:
    """A folder with umqtt.simple as .mpy. Raises PeerError when it cannot be fetched."""
    folder = fetch(build / "peers", _UMQTT.module, _UMQTT.sdists, _UMQTT.wheels)
    source = folder / "umqtt" / "simple.py"
    compile_module(source, into / "umqtt" / "simple.mpy", "umqtt/simple.py")
    return into


def measure(build: Path = Path("build"), peers: bool = True) -> Sizes:
    """Weigh everything that can be weighed here; `peers` includes umqtt.simple."""
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        library = compiled(Path(name, "library"))
        harness = Path(name, "harness")
        compile_module(_HARNESS, harness / "memory.mpy", _HARNESS.name)
        wide, narrow = Wide(), Narrow()
        groups, parts = _groups(narrow if wide.missing else wide, library, harness)
        order = [module for group in groups for module in group]
        sizes = Sizes(
            groups,
            parts,
            {module: modules.functions(SOURCES / f"{module}.py") for module in order},
            {module: Path(library, "flatmq", f"{module}.mpy").stat().st_size for module in order},
        )
        for scales in (wide, InPlace(), narrow):
            _weigh(sizes, scales, library, harness)
            _weigh_mqtt_5(sizes, scales, library, harness)
        _weigh_links(sizes, (wide, InPlace()), library, harness)
        if peers:
            try:
                other = _umqtt(build, Path(name, "other"))
                for scales in (wide, narrow):
                    held = scales.held(other, harness, steps.PRELUDE, steps.UMQTT)
                    sizes.umqtt[scales.title] = held
            except PeerError as error:
                sizes.notes.append(f"umqtt.simple: {error}")
    return sizes


def _cell(value: int | None) -> str:
    return results.NONE if value is None else f"{value:,}"


def _modules(sizes: Sizes) -> str:
    """The first table, with the sums so far that answer a question."""
    titles = (Wide.title, Narrow.title, InPlace.title)
    head = ["module", "functions", ".mpy", *titles]
    columns = [sizes.functions, sizes.mpy, *(sizes.modules.get(title, {}) for title in titles)]
    rows: list[list[str]] = []
    so_far: list[str] = []

    def add(what: str, some: list[str]) -> None:
        sums = [
            sum(column.get(module, 0) for module in some) if column else None for column in columns
        ]
        rows.append([f"**{what}**", *map(_cell, sums)])

    def add_each(group: list[str]) -> None:
        for module in group:
            rows.append([module, *(_cell(column.get(module)) for column in columns)])
            so_far.append(module)

    for group, what in zip(sizes.groups, _SUMS, strict=True):
        if what != _SUMS[-1]:
            add_each(group)
            add(what, so_far)
    for part, group in sizes.parts.items():
        add_each(group)
        add(_title(part), so_far if part == _CORE else group)
    add(_SUMS[-1], so_far)
    return results.table(head, rows)


def _title(part: str) -> str:
    return "all of package.json" if part == _CORE else f"{part}.json adds"


def _table(first: str, names: Iterable[str], columns: Columns) -> str:
    """A table whose columns have figures by name."""
    head = [first, *(title for title, _ in columns)]
    return results.table(
        head, [[name, *(_cell(column.get(name)) for _, column in columns)] for name in names]
    )


def _steps() -> list[str]:
    return [name for name in {**steps.PUBLISHING, **steps.SUBSCRIBING} if name != steps.PEER]


def _links(sizes: Sizes) -> str:
    """The third table."""
    columns = [
        (f"{step}, {title}", {link: held[step] for link, held in by_link.items()})
        for title, by_link in sizes.links.items()
        for step in (steps.MADE, steps.CONNECTED)
    ]
    return _table("link", steps.LINKS, columns)


def _held(sizes: Sizes) -> str:
    """The second table."""
    columns = [(title, sizes.steps.get(title, {})) for title in _TITLES]
    columns += [
        ("umqtt.simple, 32-bit", sizes.umqtt.get(Narrow.title, {})),
        ("64-bit", sizes.umqtt.get(Wide.title, {})),
        ("bound, 32-bit", steps.BOUNDS),
    ]
    return _table("step", _steps(), columns)


def _held_at_5(sizes: Sizes) -> str:
    """The table of steps at MQTT 5, beside 3.1.1."""
    columns: Columns = []
    for title in _TITLES:
        old, new = dict(sizes.steps.get(title, {})), dict(sizes.steps_5.get(title, {}))
        if steps.GRANTED in old:
            old[_FALLEN_BACK] = old[steps.GRANTED]
        if title in sizes.fallen_back:
            new[_FALLEN_BACK] = sizes.fallen_back[title]
        more = {name: held - old[name] for name, held in new.items() if name in old}
        columns += [(f"3.1.1, {title}", old), ("5", new), ("more", more)]
    return _table("step", [*_steps(), _FALLEN_BACK], columns)


def _features(sizes: Sizes) -> str:
    """The table of features."""
    columns = [
        (text, sizes.features.get(title, {}).get(version, {}))
        for title in _TITLES
        for version, text in ((4, f"3.1.1, {title}"), (5, "5"))
    ]
    return _table("feature", steps.features(5), columns)


def _text_of_5(sizes: Sizes) -> str:
    """The section of the document on MQTT 5."""
    flash = sum(sizes.mpy.get(module, 0) for module in sizes.parts.get("mqtt5", ()))
    parts = [
        "What MQTT 5 costs a client, with the sizes as shipped and a link in memory. It is "
        f"{flash:,} bytes of .mpy files (mqtt5.json), of which a client loads what it uses. First "
        "the bytes of heap that a client holds after each step, made with `version=5` and without "
        "it, from .mpy files unless ROMFS is named.",
        _held_at_5(sizes),
        "Bytes of heap that a client which is online and subscribed holds more after the first "
        "use of a feature: the code that this has loaded, and what it keeps. A figure below 0: "
        "the use has let go of something.",
        _features(sizes),
    ]
    return "\n\n".join(parts)


def _text(sizes: Sizes) -> str:
    """The section of the document."""
    parts = [
        "Bytes of each module: its .mpy file, and the heap that it holds once it is loaded from "
        "that file or from a ROMFS. Where the table of names has to grow, the module that needs "
        "one more pays for all of them. 64-bit is MicroPython's unix port, 32-bit the port to "
        "WebAssembly, which has no ROMFS. Each JSON file but package.json installs one part more "
        "than that does; the modules right above its row are that part. A program loads those "
        "that it uses.",
        _modules(sizes),
        "Bytes of heap that a client holds after each step, from .mpy files unless ROMFS is "
        'named, with the sizes as shipped and a link in memory. The steps after "subscribed" '
        "are those of a board that subscribes before it connects; the steps above it those of a "
        "board that only publishes.",
        _held(sizes),
        "Bytes of heap that a client holds over each link, made and then connected to a peer on "
        "this machine; it only publishes. This port's Mbed TLS has memory of its own, which is "
        "not in these figures. ESP32 has it so, too; on other boards TLS takes about 23 KB "
        "more of the heap (docs/tls.md). The 32-bit interpreter has neither sockets nor TLS.",
        _links(sizes),
        *sizes.notes,
    ]
    return "\n\n".join(parts)


def main(document: Path | None = None, build: Path = Path("build")) -> int:
    """Print what each module and each step takes, and put it into `document`; return 0."""
    sizes = measure(build)
    text, text_of_5 = _text(sizes), f"## MQTT 5: size\n\n{_text_of_5(sizes)}"
    Console().print(Markdown(f"{text}\n\n{text_of_5}"))
    for note in sizes.notes:
        print(f"not measured: {note}")
    for line in sizes.over():
        print(f"over its bound: {line}")
    if document:
        results.write(document, "size", sealed(text))
        results.write(document, "size5", text_of_5)
    return 0
