"""The charts of the page as data, and the one drawing by which Vega draws all of them."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import vl_convert

from . import numbers
from .figures import BUCKETS, Batch, Figures, Quantity, step

Line = Sequence[float | None]
Chart = dict[str, Any]
"""Points at regular times, and what stands around them; `_chart` makes it."""

_TIME = {
    "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M", "date": "%e %b", "week": "%e %b",
    "month": "%b", "quarter": "%b", "year": "%Y",
}  # fmt: skip
_X: dict[str, Any] = {
    "field": "t", "type": "temporal", "scale": {"domain": {"expr": "[xlo, xhi]"}},
    "axis": {"title": None, "grid": False, "tickCount": {"expr": "width / 110"},
             "format": _TIME, "labelFlush": True, "labelOverlap": True},
}  # fmt: skip
_Y: dict[str, Any] = {
    "field": "v", "type": "quantitative",
    "scale": {"domain": {"expr": "[ylo, yhi]"}, "zero": False, "nice": 4},
    "axis": {"title": None, "tickCount": 4, "domain": False, "ticks": False,
             "tickMinStep": {"expr": "log"},
             "labelExpr": "format(log ? pow(10, datum.value) : datum.value, ',~r')"},
}  # fmt: skip
_COLOUR = {"field": "c", "type": "nominal", "scale": None}
_LAYERS: list[dict[str, Any]] = [
    {"data": {"name": "bars"}, "mark": {"type": "rect", "opacity": {"expr": "datum.o"}},
     "encoding": {"x": _X, "x2": {"field": "t2"}, "y": _Y, "y2": {"field": "v2"},
                  "color": _COLOUR}},
    {"data": {"name": "areas"}, "mark": {"type": "area", "opacity": 0.2},
     "encoding": {"x": _X, "y": _Y, "y2": {"field": "v2"}, "color": _COLOUR,
                  "detail": {"field": "part", "type": "nominal"}}},
    {"data": {"name": "lines"}, "mark": {"type": "line", "strokeJoin": "round"},
     "encoding": {"x": _X, "y": _Y, "color": _COLOUR,
                  "strokeWidth": {"field": "w", "type": "quantitative", "scale": None},
                  "detail": {"field": "part", "type": "nominal"}}},
    {"data": {"name": "dots"}, "mark": {"type": "point", "filled": True, "size": 28, "opacity": 1},
     "encoding": {"x": _X, "y": _Y, "color": _COLOUR}},
    {"data": {"name": "cursor"}, "mark": {"type": "rule", "opacity": 0.5},
     "encoding": {"x": _X, "color": _COLOUR}},
]  # fmt: skip


@functools.cache
def drawing() -> Any:
    """Return what Vega draws: data sets and bounds that the page fills."""
    bounds = [{"name": name, "value": 0} for name in ("xlo", "xhi", "ylo", "yhi", "log")]
    return vl_convert.vegalite_to_vega(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json", "width": "container",
            "height": 170, "padding": 2, "background": "transparent",
            "autosize": {"type": "fit-x", "contains": "padding"},
            "params": bounds, "layer": _LAYERS, "config": {"view": {"stroke": None}},
            "datasets": {layer["data"]["name"]: [] for layer in _LAYERS},
        }
    )  # fmt: skip


@functools.cache
def library() -> str:
    """Return Vega as a script that makes `vega`.

    Its interpreter goes with it: a page then needs no leave to evaluate texts as code.
    """
    modules = "https://cdn.jsdelivr.net/npm/"  # names of what vl-convert has: nothing is fetched
    script: str = vl_convert.javascript_bundle(
        f"import {{ parse, View }} from '{modules}vega@{vl_convert.get_vega_version()}/+esm';"
        f"import {{ expressionInterpreter }} from '{modules}vega-interpreter@2.0.0/+esm';"
        "window.vega = { parse, View, expressionInterpreter };"
    )
    return script.replace("\r", "").replace("</script", "<\\/script")


def fleet(figures: Figures) -> list[Chart]:
    """Return the charts of the fleet over time; there is none without anything to show."""
    width, start = figures.step, figures.since.timestamp()
    moments, losses = _whole(figures, figures.moments, width), figures.losses
    grid = (start + moments[0].at, width) if moments else (start, width)
    found = [_chart(
        "Messages", f"per {numbers.duration(width)}", "", grid,
        bars=[("messages", "blue", [moment.messages for moment in moments])],
    )]  # fmt: skip
    heard = _whole(figures, figures.heard, figures.wide)
    if heard:
        found.append(_chart(
            "Devices heard", f"in each {numbers.duration(figures.wide)}", "",
            (start + heard[0].at, figures.wide),
            lines=[("known by then", "quiet", [each.known for each in heard]),
                   ("heard", "teal", [each.heard for each in heard])],
        ))  # fmt: skip
    every = (start + figures.moments[0].at, width) if figures.moments else grid
    delays = [
        (name, colour, [None if (ms := m[n]) is None else ms / 1000 for m in figures.moments])
        for n, name, colour in ((2, "median", "teal"), (3, "95 %", "amber"), (4, "99 %", "red"))
    ]
    if any(s is not None for *_, line in delays for s in line):
        # From some ms to days, where boards were without a network or a clock is wrong.
        note = "from measuring to arrival"
        found.append(_chart("Delay", note, "s", every, lines=delays, log=True))
    if any(losses):
        found.append(_chart(
            "Messages lost", f"found missing per {numbers.duration(width)}", "", every,
            bars=[("lost", "red", losses)],
        ))  # fmt: skip
    return found


def pipeline(batches: Sequence[Batch]) -> list[Chart]:
    """Return the charts of the pipeline's own work."""
    if not batches:
        return []
    begin, end = (pick(batch.at for batch in batches) for pick in (min, max))
    width = step(max((end - begin) / BUCKETS, 1))
    count = int((end - begin) // width) + 1

    def line(numbers: Iterable[tuple[float, float | None]]) -> list[float | None]:
        highest: list[float | None] = [None] * count
        for at, number in numbers:
            n = int((at - begin) // width)
            if number is not None:
                highest[n] = max(highest[n] or 0, number)
        return highest

    grid = (begin, width)
    names = list(dict.fromkeys(batch.query for batch in batches))
    colours = dict(zip(names, ("blue", "violet", "teal", "amber"), strict=False))
    times = [
        (name, colours.get(name, "muted"),
         line((batch.at, batch.seconds) for batch in batches if batch.query == name))
        for name in names
    ]  # fmt: skip
    allowed = [batch.trigger for batch in batches if batch.trigger]
    if allowed:
        times.append(("interval", "quiet", [max(allowed)] * count))
    found = [_chart("Time of a batch", "the longest", "s", grid, lines=times)]
    begins = [batch for batch in batches if batch.spool is not None]
    if begins:
        waits = line((batch.at, (batch.spool or 0) + batch.rows) for batch in begins)
        note = "received, and not in a table, when a batch begins"
        found.append(
            _chart("Messages that wait", note, "", grid, bars=[("waiting", "violet", waits)])
        )
    return found


def value(of: Quantity, grid: tuple[float, float], colours: Sequence[str]) -> Chart:
    """Return the chart of a quantity: lines of few devices, or a band of many."""
    unit = numbers.UNITS.get(of.unit, of.unit)
    some = numbers.some(of.devices, "device")
    if not of.bands:
        lines = [
            (name, colours[n % len(colours)], line)
            for n, (name, line) in enumerate(sorted(of.curves.items()))
        ]
        return _chart(of.name, some, unit, grid, lines=lines, zero=False)

    def part(name: str) -> list[float | None]:
        return [None if band is None else getattr(band, name) for band in of.bands]

    return _chart(
        of.name, some, unit, grid, zero=False,
        areas=[("all devices", "blue", part("low"), part("high")),
               ("8 of 10", "blue", part("p10"), part("p90"))],
        lines=[("median", "blue", part("p50"))],
    )  # fmt: skip


def _chart(
    title: str, note: str, unit: str, grid: tuple[float, float],
    lines: Iterable[tuple[str, str, Line]] = (), bars: Iterable[tuple[str, str, Line]] = (),
    areas: Iterable[tuple[str, str, Line, Line]] = (), zero: bool = True, log: bool = False,
) -> Chart:  # fmt: skip
    """Return a chart: names, names of colours, and points.

    grid  when the first stretch begins, and how long each is, in seconds
    zero  whether the bounds include 0
    log   the bounds are powers of ten; what is not above 0 is at the lower one
    """
    made: Chart = {
        "title": title, "note": note, "unit": unit, "at": grid[0], "step": grid[1],
        "log": log,
        "lines": [[name, colour, short(line)] for name, colour, line in lines],
        "bars": [[name, colour, short(line)] for name, colour, line in bars],
        "areas": [[name, colour, short(low), short(high)] for name, colour, low, high in areas],
    }  # fmt: skip
    every = [line for of in ("lines", "bars", "areas") for each in made[of] for line in each[2:]]
    found = [number for line in every for number in line if number is not None]
    low, high = min(found, default=0), max(found, default=0)
    if log:
        powers = [math.log10(number) for number in found if number > 0] or [0.0]
        low, high = math.floor(min(powers)), math.floor(max(powers)) + 1
    elif zero:
        low, high = min(low, 0), max(high, 0)
    if low == high:  # in the middle, if it is one value all the time
        low, high = (low - (abs(low) or 1) / 10, high + (abs(high) or 1) / 10)
    return {**made, "low": low, "high": high}


def short(line: Line) -> list[float | None]:
    """Return numbers of five figures: what a chart shows."""
    return [None if number is None else json.loads(f"{number:.5g}") for number in line]


def _whole(figures: Figures, moments: Sequence[Any], width: float) -> Sequence[Any]:
    """Leave out the stretches that the period cuts, unless there are few.

    In the seconds of the last one hardly any device is heard, which does not mean that the others
    are silent.
    """
    whole = [m for m in moments if m.at >= 0 and m.at + width <= figures.span]
    return whole if len(whole) > 2 else moments
