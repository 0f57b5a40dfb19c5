"""Draw the headlines of the results: docs/headlines.md and its charts, from docs/results.md."""

from __future__ import annotations

import re
from pathlib import Path

from .results import markers, write

SECTION = "headlines"
CHARTS = "charts"
_OURS, _OTHERS = "#00796b", "#90a4ae"

Rows = dict[str, dict[str, str]]


def rows(document: str, section: str, column: str) -> Rows:
    """Return the first table of a section that has that column: rows by their first cell.

    Raises ValueError if there is none.
    """
    begin, end = markers(section)
    lines = document.partition(begin)[2].partition(end)[0].splitlines()
    head: list[str] = []
    found: Rows = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            if found:
                break
            head = []
        elif not head:
            head = cells
        elif column in head and not set(cells[0]) <= set("- "):
            found[cells[0]] = dict(zip(head, cells, strict=True))
    if not found:
        raise ValueError(f"section {section!r}: no table has the column {column!r}")
    return found


def figure(cell: str) -> float:
    """Return the first number of a cell. Raises ValueError if there is none."""
    number = re.search(r"\d[\d,]*(?:\.\d+)?", cell)
    if not number:
        raise ValueError(f"cell {cell!r}: has no number")
    return float(number.group().replace(",", ""))


def draw(path: Path, title: str, bars: dict[str, float], unit: str) -> None:
    """Write a chart of horizontal bars as SVG; flatmq's are in colour."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = SECTION
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(7, 0.6 + 0.38 * len(bars)), layout="constrained")
    names = list(bars)[::-1]
    colours = [_OURS if name.startswith("flatmq") else _OTHERS for name in names]
    shapes = axes.barh(names, [bars[name] for name in names], color=colours)
    axes.bar_label(shapes, [f"{bars[name]:,.10g} {unit}" for name in names], padding=4)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlim(0, max(bars.values()) * 1.3)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def cores(document: str) -> int:
    """Return the number of cores on which the pipeline was measured. Raises ValueError."""
    begin, end = markers("pipeline")
    found = re.search(r"on (\d+) cores", document.partition(begin)[2].partition(end)[0])
    if not found:
        raise ValueError("section 'pipeline': the number of cores is missing")
    return int(found[1])


def crashes(document: str) -> tuple[int, int, int]:
    """Return the kills of the crash suite, and the rows that were missing and there twice.

    The rows are the sums over all readers. Raises ValueError if there are no readers.
    """
    kills = missing = twice = 0
    for row in rows(document, "crash", "killed").values():
        readers = [cell.split(" · ") for cell in row.values() if " · " in cell]
        if not readers:
            raise ValueError("section 'crash': no column has missing · twice")
        kills += int(figure(row["kills"]))
        missing += sum(int(figure(lost)) for lost, _again in readers)
        twice += sum(int(figure(again)) for _lost, again in readers)
    return kills, missing, twice


def charts(document: str) -> dict[str, tuple[str, dict[str, float], str]]:
    """Return the title, the bars and the unit of each chart, by its name."""
    heap = rows(document, "bench", "publish QoS 1 + ack")
    memory = rows(document, "bench", "import + connect")
    speed = rows(document, "bench", "publish alone")
    pipeline = rows(document, "pipeline", "pipeline")
    kept = "publish QoS 1 + ack"
    return {
        "heap": (
            "Garbage left by a publish at QoS 1 and its acknowledgement",
            {name: figure(row[kept]) for name, row in heap.items()},
            "bytes",
        ),
        "memory": (
            "Heap held by the library and a connected client",
            {name: figure(row["import + connect"]) for name, row in memory.items()},
            "bytes",
        ),
        "speed": (
            "CPU time of a publish at QoS 0",
            {name: figure(speed[name]["publish alone"]) for name in heap},
            "µs",
        ),
        "pipeline": (
            "From a broker to a Parquet table",
            {
                "flatmq": figure(pipeline["source"]["rows/s"]),
                "the same with paho-mqtt": figure(pipeline["source-paho"]["rows/s"]),
            },
            "rows per second",
        ),
    }


def page(document: str) -> str:
    """Return the headlines: a sentence and a chart each, with links to the tables."""
    drawn = charts(document)
    names = ("heap", "memory", "speed", "pipeline")
    heap, memory, speed, rate = (drawn[name][1] for name in names)
    small = rows(document, "size", "bound")["online, subscribed"]
    kills, missing, twice = crashes(document)
    targets = rows(document, "bench", "target")
    missed = sum("MISSED" in row.values() for row in targets.values())
    slowest = "slowest operation over a link in memory"
    large, little = (targets[f"{slowest}, {bits}-bit"]["measured"] for bits in (64, 32))
    simple = "umqtt.simple"
    return f"""
## Memory that does not change

Publishing at QoS 1 leaves {heap["flatmq"]:,.0f} bytes of garbage with flatmq and
{heap[simple]:,.0f} with umqtt.simple. [All operations](results.md#heap-bytes-per-operation) are
compared in the results.

![Bars: bytes of garbage by client]({CHARTS}/heap.svg)

## Memory that is held

This is what it costs: a connected flatmq holds {memory["flatmq"]:,.0f} bytes, and umqtt.simple
{memory[simple]:,.0f}. From a ROMFS partition, flatmq holds
{memory["flatmq, .mpy in ROMFS"]:,.0f}. The figures are for
[64-bit MicroPython](results.md#memory-bytes). On 32 bits, from .mpy files, a flatmq that has
subscribed [holds](results.md#where-the-memory-goes) {figure(small["flatmq"]):,.0f} bytes, and
umqtt.simple {figure(small[simple]):,.0f}.

![Bars: bytes held by client]({CHARTS}/memory.svg)

## Speed

A publish at QoS 0 takes {speed["flatmq"]:,.10g} µs of [CPU time](results.md#speed) with flatmq and
{speed[simple]:,.10g} µs with umqtt.simple, which makes
[more calls to the system](results.md#socket-calls-per-message). Over
[a link in memory](results.md#the-interpreters-work-alone), where such calls cost next to nothing,
an operation of flatmq takes up to {large} times as long as with umqtt.simple on 64 bits, and up to
{little} times on 32 bits.

![Bars: microseconds by client]({CHARTS}/speed.svg)

## From a broker to tables

On {cores(document)} cores, the pipeline stores {rate["flatmq"]:,.0f} messages per second in a
Parquet table. [The parts](results.md#the-pipeline-speed) are measured one by one.

![Bars: rows per second]({CHARTS}/pipeline.svg)

## Crashes

Parts of the pipeline were killed {kills} times while they worked. Afterwards, the readers of the
tables found {missing} rows missing and {twice} rows twice.
[The table](results.md#crashes-of-the-pipeline) lists each part and each reader.

## Targets

{len(targets) - missed} of {len(targets)} targets are met and {missed} are missed.
[The table](results.md#targets) names each of them.
"""


def main(folder: Path) -> None:
    """Write the page and the charts to a folder that has results.md."""
    document = (folder / "results.md").read_text(encoding="utf-8")
    for name, (title, bars, unit) in charts(document).items():
        draw(folder / CHARTS / f"{name}.svg", title, bars, unit)
    write(folder / "headlines.md", SECTION, page(document))
