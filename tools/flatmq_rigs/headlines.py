"""Draw the headlines of the results, a section of docs/results.md, and their charts."""

from __future__ import annotations

import re
from pathlib import Path

import vl_convert

from . import results

SECTION = "headlines"
CHARTS = "charts"
_OURS, _OTHERS = "#00796b", "#90a4ae"
_INK = "#7a848e"  # texts and lines: readable on a white page and on a dark one

Rows = dict[str, dict[str, str]]


def table(document: Path, section: str, column: str) -> tuple[str, Rows]:
    """Return the first table of a section that has that column: its place and its rows.

    The place is relative to the document, and the rows are by their first cell. Raises ValueError
    if there is none.
    """
    for path in results.tables(document, section):
        head, *lines = results.rows(path)
        if column in head:
            rows = {cells[0]: dict(zip(head, cells, strict=True)) for cells in lines}
            return path.relative_to(document.parent).as_posix(), rows
    raise ValueError(f"section {section!r}: no table has the column {column!r}")


def figure(cell: str) -> float:
    """Return the first number of a cell. Raises ValueError if there is none."""
    number = re.search(r"\d[\d,]*(?:\.\d+)?", cell)
    if not number:
        raise ValueError(f"cell {cell!r}: has no number")
    return float(number.group().replace(",", ""))


def draw(path: Path, title: str, bars: dict[str, float], unit: str) -> None:
    """Write a chart of horizontal bars as SVG; flatmq's are in colour."""
    rows = [
        {"name": name, "value": value, "label": f"{value:,.10g} {unit}",
         "colour": _OURS if name.startswith("flatmq") else _OTHERS}
        for name, value in bars.items()
    ]  # fmt: skip
    chart = {
        "data": {"values": rows}, "width": 340, "height": {"step": 26}, "background": None,
        "title": {"text": title, "anchor": "start", "color": _INK, "fontSize": 14},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelColor": _INK, "labelFontSize": 12, "labelLimit": 0,
                           "domainColor": _INK, "ticks": False, "labelPadding": 6}},
            "x": {"field": "value", "type": "quantitative", "axis": None},
        },
        "layer": [
            {"mark": "bar", "encoding": {"color": {"field": "colour", "scale": None}}},
            {"mark": {"type": "text", "align": "left", "dx": 5, "color": _INK, "fontSize": 12},
             "encoding": {"text": {"field": "label"}}},
        ],
        "config": {"view": {"stroke": None}},
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(vl_convert.vegalite_to_svg(chart) + "\n", encoding="utf-8")


def crashes(rows: Rows) -> tuple[int, int, int]:
    """Return the kills of the crash suite, and the rows that were missing and there twice.

    The rows are the sums over all readers. Raises ValueError if there are no readers.
    """
    kills = missing = twice = 0
    for row in rows.values():
        readers = [cell.split(" · ") for cell in row.values() if " · " in cell]
        if not readers:
            raise ValueError("section 'crash': no column has missing · twice")
        kills += int(figure(row["kills"]))
        missing += sum(int(figure(lost)) for lost, _again in readers)
        twice += sum(int(figure(again)) for _lost, again in readers)
    return kills, missing, twice


def garbage(document: Path) -> dict[str, float]:
    """Return the bytes that a QoS 1 round trip leaves behind, by client. The columns are alike."""
    for path in results.tables(document, "work"):
        for cells in results.rows(path):
            if cells[0] == "QoS 1 round trip, one in flight":
                return {"flatmq": figure(cells[2]), "umqtt.simple": figure(cells[4])}
    raise ValueError("section 'work': no table has a round trip")


def charts(document: Path) -> dict[str, tuple[str, dict[str, float], str]]:
    """Return the title, the bars and the unit of each chart, by its name."""
    _, sizes = table(document, "size", "bound")
    _, speed = table(document, "bench", "publish alone")
    _, pipeline = table(document, "pipeline", "pipeline")
    heap = garbage(document)
    online = sizes["online, subscribed"]
    return {
        "heap": ("Garbage left by a publish at QoS 1 and its acknowledgement", heap, "bytes"),
        "memory": (
            "Heap held online and subscribed, on 32 bits",
            {name: figure(online[name]) for name in heap},
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


def page(document: Path) -> str:
    """Return the headlines: a sentence or two and a chart each, with links to the tables."""
    drawn = charts(document)
    names = ("heap", "memory", "speed", "pipeline")
    heap, memory, speed, rate = (drawn[name][1] for name in names)
    sizes, _ = table(document, "size", "bound")
    crash, killed = table(document, "crash", "killed")
    kills, missing, twice = crashes(killed)
    goals, targets = table(document, "bench", "target")
    missed = sum("MISSED" in row.values() for row in targets.values())
    slowest = "slowest operation over a link in memory"
    large, little = (targets[f"{slowest}, {bits}-bit"]["measured"] for bits in (64, 32))
    simple = "umqtt.simple"
    return f"""
**Memory.** Publishing at QoS 1 leaves {heap["flatmq"]:,.0f} bytes of garbage with flatmq and
{heap[simple]:,.0f} with umqtt.simple. In return flatmq holds more: on 32 bits, from .mpy files,
[online and subscribed]({sizes}), {memory["flatmq"]:,.0f} bytes, umqtt.simple
{memory[simple]:,.0f}.

![Bars: bytes of garbage by client]({CHARTS}/heap.svg)

![Bars: bytes held by client]({CHARTS}/memory.svg)

**Speed.** A publish at QoS 0 takes {speed["flatmq"]:,.10g} µs of CPU time with flatmq and
{speed[simple]:,.10g} µs with umqtt.simple, which makes more calls to the system. Where such calls
cost next to nothing, an operation of flatmq takes up to {large} times as long on 64 bits, and up
to {little} times on 32 bits.

![Bars: microseconds by client]({CHARTS}/speed.svg)

**From a broker to tables.** The pipeline stores {rate["flatmq"]:,.0f} messages per second. Parts
of it were [killed {kills} times]({crash}) while they worked: {missing} rows were missing
afterwards, and {twice} were there twice.

![Bars: rows per second]({CHARTS}/pipeline.svg)

**Targets.** {len(targets) - missed} of {len(targets)} [targets]({goals}) are met, {missed} are
missed.
"""


def main(folder: Path) -> None:
    """Write the section and the charts to a folder that has results.md."""
    document = folder / "results.md"
    for name, (title, bars, unit) in charts(document).items():
        draw(folder / CHARTS / f"{name}.svg", title, bars, unit)
    results.write(document, SECTION, page(document))
