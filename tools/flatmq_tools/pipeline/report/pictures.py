"""The report's pictures: each as an SVG that takes the page's colours, and as a PNG."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from . import numbers
from .figures import Batch, Device, Figures, step

WIDTH, HEIGHT = 4.3, 2.6  # inches: as wide as a phone, so that its texts are read there
LOW = 0.9  # inches, where there is nothing to draw
_DPI = 220
MOST = 12
"""Boards in a picture; those with most to show."""
POINTS = 300
"""Points of a line, at most about so many."""

# The colours of the PNG, which an SVG has by name: the page says what they are, by day and night.
COLOURS = {
    "ink": "#1b2430", "muted": "#66707d", "grid": "#e3e7ec", "paper": "#ffffff",
    "blue": "#2463d6", "teal": "#0d8f83", "amber": "#c97a06", "red": "#d13438",
    "violet": "#7a4fd0", "quiet": "#c5ccd6",
}  # fmt: skip

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 10.5,
    "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.edgecolor": COLOURS["quiet"], "axes.grid": True,
    "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8, "text.color": COLOURS["ink"], "axes.labelcolor": COLOURS["muted"],
    "xtick.color": COLOURS["muted"], "ytick.color": COLOURS["muted"], "xtick.labelsize": 10,
    "ytick.labelsize": 10, "xtick.major.size": 3, "ytick.major.size": 0, "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round", "legend.frameon": False, "legend.fontsize": 10,
    "legend.handlelength": 1.2, "legend.columnspacing": 1.2, "figure.facecolor": COLOURS["paper"],
    "axes.facecolor": "none", "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.xmargin": 0.02,
}  # fmt: skip


class Picture(NamedTuple):
    """A picture with what stands around it."""

    name: str
    title: str
    note: str
    """What an axis counts, or how many of how many are shown; may be empty."""
    says: str
    """The picture in a sentence, for those who do not see it."""
    svg: str
    png: bytes


class _Plot(NamedTuple):
    name: str
    title: str
    draw: Callable[[Axes, Figures], str]
    """Draws, and returns what it says."""
    note: Callable[[Figures], str] = lambda _: ""
    height: Callable[[Figures], float] = lambda _: HEIGHT


def pictures(figures: Figures) -> list[Picture]:
    """Those for which there is something to draw."""
    made = []
    for plot in _PLOTS:
        if plot.name in ("batches", "spool") and not figures.batches:
            continue
        if plot.name == "spool" and all(batch.spool is None for batch in figures.batches):
            continue
        made.append(_made(plot, figures))
    return made


def _made(plot: _Plot, figures: Figures) -> Picture:
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": plot.name}):
        figure = Figure(figsize=(WIDTH, plot.height(figures)), layout="constrained")
        axes = figure.add_subplot()
        says = plot.draw(axes, figures)
        svg = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", transparent=True, metadata=nothing)
        figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        note = plot.note(figures)
        if note:
            figure.supxlabel(note, x=0.99, ha="right", fontsize=9, color=COLOURS["muted"])
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return Picture(
        plot.name, plot.title, note, says, _for_page(svg.getvalue(), plot, says), png.getvalue()
    )


def _for_page(svg: str, plot: _Plot, says: str) -> str:
    """Return the SVG as a part of the page.

    It is as wide as there is room, in the page's colours, with names that no other picture
    has.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    box = re.search(r'viewBox="[^"]+"', svg)
    assert box is not None
    label = says.replace("&", "and").replace("<", "").replace('"', "")
    svg = re.sub(r"<svg[^>]*>", f'<svg {box[0]} role="img" aria-label="{label}">', svg, count=1)
    svg = re.sub(r'\bid="', f'id="{plot.name}-', svg)
    svg = re.sub(r'(url\(|xlink:href=")#', rf"\1#{plot.name}-", svg).replace("xlink:href", "href")
    svg = re.sub(r"font(-family)?: ?[^;\"]*'?DejaVu Sans'?[^;\"]*", _size, svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()


def _size(match: re.Match[str]) -> str:
    """A font without its family: the page has its own."""
    found = re.search(r"([\d.]+)px", match[0])
    return f"font-size: {found[1]}px" if found else ""


# The pictures


def _rate(axes: Axes, figures: Figures) -> str:
    whole = _whole(figures.moments, figures.step, figures)
    rates = [(m.at, m.messages / (_covered(m.at, figures.step, figures) or 1)) for m in whole]
    times, values = _steps(rates, figures)
    axes.fill_between(times, values, step="post", color=COLOURS["blue"], alpha=0.18, linewidth=0)
    axes.step(times, values, where="post", color=COLOURS["blue"])
    axes.set_ylim(bottom=0)
    _in_time(axes, figures)
    return f"Messages per second over time, at most {numbers.decimal(max(values, default=0))}."


def _seen(axes: Axes, figures: Figures) -> str:
    whole = _whole(figures.heard, figures.wide, figures)
    times, known = _steps([(h.at, h.known) for h in whole], figures)
    _, heard = _steps([(h.at, h.heard) for h in whole], figures)
    axes.fill_between(times, known, step="post", color=COLOURS["quiet"], alpha=0.6, linewidth=0,
                      label="silent then")  # fmt: skip
    axes.fill_between(times, heard, step="post", color=COLOURS["teal"], linewidth=0, label="seen")
    axes.set_ylim(0, max([*known, 1]) * 1.05)
    _counts(axes, 5)
    _legend(axes)
    _in_time(axes, figures)
    silent = sum(d.silent for d in figures.devices)
    return (
        f"Boards seen and silent over time; {len(figures.devices)} are known, {silent} silent now."
    )


def _whole(stretches: Sequence[Any], width: float, figures: Figures) -> list[Any]:
    """Return the stretches that the first and the last message do not cut short.

    Less happens in the others. All of them if every one is cut.
    """
    whole = [s for s in stretches if _covered(s.at, width, figures) >= 0.8 * width]
    return whole or list(stretches)


def _covered(at: float, width: float, figures: Figures) -> float:
    """The seconds of a stretch from the first message on, and up to the last."""
    return min(at + width, figures.span) - max(at, 0.0)


def _steps(points: list[tuple[float, float]], figures: Figures) -> tuple[list[Any], list[float]]:
    """Times and values, of which the last one holds to the end, and the first from the begin."""
    if not points:
        return [], []
    ends = [(0.0, points[0][1]), *points[1:], (figures.span, points[-1][1])]
    return [_time(figures, at) for at, _ in ends], [value for _, value in ends]


def _loss(axes: Axes, figures: Figures) -> str:
    worst = sorted((d for d in figures.devices if d.lost), key=lambda d: (-d.lost, d.name))[:MOST]
    if not worst:
        return _nothing(axes, "nothing was lost", "No reading was lost.")
    _bars(axes, worst, [d.lost for d in worst], COLOURS["red"],
          [f"{numbers.count(d.lost)}  ({numbers.percent(d.loss)})" for d in worst])  # fmt: skip
    first = worst[0]
    return f"Lost readings by board; most at {first.name}: {first.lost}."


def _delays(axes: Axes, figures: Figures) -> str:
    told = [m for m in figures.moments if m.p50 is not None]
    if not told:
        return _nothing(axes, "no pack has a time of its own", "No delay is known.")
    times = [_time(figures, m.at) for m in told]
    for name, label, colour in (
        ("p99", "99 %", "violet"),
        ("p95", "95 %", "blue"),
        ("p50", "median", "teal"),
    ):
        axes.plot(times, [getattr(m, name) for m in told], color=COLOURS[colour], label=label)
    _delay_axis(axes, [ms for m in told for ms in (m.p50, m.p95, m.p99) if ms is not None])
    _legend(axes, 3)
    _in_time(axes, figures)
    median = numbers.milliseconds(figures.delays[0])
    return f"Delay from a pack's time to its arrival; the median is {median}."


_DELAYS = {
    1: "1 ms", 10: "10 ms", 100: "100 ms", 1e3: "1 s", 1e4: "10 s", 6e4: "1 min", 6e5: "10 min",
    3.6e6: "1 h", 3.6e7: "10 h", 8.64e7: "1 d", 8.64e8: "10 d",
}  # fmt: skip
_FEW = {10, 1e3, 6e4, 3.6e6, 8.64e7}


def _delay_axis(axes: Axes, delays: Sequence[float]) -> None:
    """Logarithmic, in units that people use; from below 0 on where a clock is ahead."""
    if min(delays) > 0:
        axes.set_yscale("log")
    else:
        axes.set_yscale("symlog", linthresh=10)
    low, high = axes.get_ylim()
    ticks = [ms for ms in _DELAYS if low <= ms <= high]
    if len(ticks) > 5:
        ticks = [ms for ms in ticks if ms in _FEW]
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda ms, _: _DELAYS.get(ms) or numbers.milliseconds(ms))
    )
    if len(ticks) > 1:
        below = [-ms for ms in _DELAYS if low <= -ms <= high][-3:]
        axes.yaxis.set_major_locator(ticker.FixedLocator([*below, *ticks]))
    elif low > 0:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def _gaps(axes: Axes, figures: Figures) -> str:
    boards = _with_gaps(figures)
    if not boards:
        return _nothing(axes, "no gap", "No gap and no silence.")
    rows = {name: row for row, name in enumerate(boards)}
    # A line for all of a kind: one for each would take seconds.
    lost = [gap for gap in figures.gaps if gap.device in rows and gap.kind == "lost"]
    silent = [gap for gap in figures.gaps if gap.device in rows and gap.kind == "silent"]
    for some, style in ((silent, _KINDS["silent"]), (lost, _KINDS["lost"])):
        axes.hlines(
            [rows[gap.device] for gap in some],
            [_time(figures, gap.since) for gap in some],
            [_time(figures, gap.until) for gap in some],
            **style,
        )
    axes.plot(
        [_time(figures, gap.since) for gap in lost], [rows[gap.device] for gap in lost],
        color=COLOURS["red"], marker="|", markersize=9, markeredgewidth=1.8, linestyle="none",
    )  # fmt: skip
    reboots = [reboot for reboot in figures.reboots if reboot.device in rows]
    axes.plot(
        [_time(figures, reboot.at) for reboot in reboots],
        [rows[reboot.device] for reboot in reboots], **_KINDS["reboot"],
    )  # fmt: skip
    for kind, style in _KINDS.items():
        axes.plot([], [], label=kind, **style)
    axes.set_yticks(range(len(boards)), _short(boards))
    axes.set_ylim(len(boards) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)
    _in_time(axes, figures)
    return f"When readings are missing and boards silent, of the {len(boards)} boards with most."


def _reboots_in(figures: Figures) -> float:
    """Seconds that a bar stands for."""
    return max(figures.wide, step(figures.span / 40))


_KINDS: dict[str, dict[str, Any]] = {
    "lost": {"color": COLOURS["red"], "linewidth": 2.2},
    "silent": {"color": COLOURS["amber"], "linewidth": 5, "alpha": 0.55},
    "reboot": {"color": COLOURS["violet"], "marker": "^", "markersize": 5.5, "linestyle": "none"},
}


def _with_gaps(figures: Figures) -> list[str]:
    """The boards of the timeline: those that are missing most, then those silent for longest."""
    weight: dict[str, tuple[int, float]] = {}
    for gap in figures.gaps:
        missing, silence = weight.get(gap.device, (0, 0.0))
        silent = gap.until - gap.since if gap.kind == "silent" else 0.0
        weight[gap.device] = (missing + (gap.missing or 0), silence + silent)
    # Of many gaps only some are there: what was lost is known of the devices.
    lost = {device.name: device.lost for device in figures.devices}
    by_lost = sorted(weight, key=lambda n: (-lost.get(n, 0), -weight[n][0], n))
    by_silence = sorted(weight, key=lambda name: (-weight[name][1], name))
    chosen = dict.fromkeys(n for n in by_silence[: MOST // 2] if weight[n][1] > 0)
    chosen |= dict.fromkeys(by_lost)
    return sorted(list(chosen)[:MOST])


def _gaps_height(figures: Figures) -> float:
    boards = len(_with_gaps(figures))
    return max(HEIGHT, 1.0 + 0.23 * boards) if boards else LOW


def _loss_height(figures: Figures) -> float:
    boards = min(sum(d.lost > 0 for d in figures.devices), MOST)
    return max(LOW, 0.4 + 0.23 * boards) if boards else LOW


def _reboots(axes: Axes, figures: Figures) -> str:
    total = sum(reboot.starts for reboot in figures.reboots)
    if not total:
        return _nothing(axes, "no reboot", "No board restarted.")
    width = _reboots_in(figures)
    starts: dict[int, int] = {}
    for reboot in figures.reboots:
        n = int(reboot.at // width)
        starts[n] = starts.get(n, 0) + reboot.starts
    days = width / 86400
    axes.bar([_time(figures, n * width) for n in starts], list(starts.values()), width=days * 0.85,
             align="edge", color=COLOURS["violet"])  # fmt: skip
    _counts(axes, 4)
    _in_time(axes, figures)
    return f"Reboots over time, {total} in all."


def _batches(axes: Axes, figures: Figures) -> str:
    colours = {"raw": "blue", "measurements": "teal", "windows": "violet"}
    queries = list(dict.fromkeys(batch.query for batch in figures.batches))
    over = 0
    for query in sorted(queries, key=lambda q: list(colours).index(q) if q in colours else 9):
        every = [batch for batch in figures.batches if batch.query == query]
        over += sum(batch.late for batch in every)
        own = _thinned(every, lambda batch: batch.seconds)
        axes.plot(
            [_time(figures, b.at) for b in own], [b.seconds for b in own], label=query,
            color=COLOURS[colours.get(query, "muted")],
            **({"linewidth": 0.9} if len(own) > 150 else {"marker": ".", "linewidth": 1.3}),
        )  # fmt: skip
    triggers = {b.trigger for b in figures.batches if b.trigger}
    for trigger in triggers:
        axes.axhline(trigger, color=COLOURS["amber"], linestyle=(0, (4, 3)), linewidth=1.4)
    if triggers:
        axes.plot(
            [], [], color=COLOURS["amber"], linestyle=(0, (4, 3)), linewidth=1.4, label="trigger"
        )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda s, _: numbers.duration(s)))
    _legend(axes, 2 if len(queries) > 2 else 4)
    _in_time_of_batches(axes, figures)
    return f"Time that each batch took; {over} of {len(figures.batches)} longer than the trigger."


def _thinned(every: list[Batch], of: Callable[[Batch], float]) -> list[Batch]:
    """Of the batches of each stretch of time the one with the most, where there are many."""
    if len(every) <= POINTS:
        return every
    width = (every[-1].at - every[0].at) / POINTS or 1.0
    most: dict[int, Batch] = {}
    for batch in every:
        n = int((batch.at - every[0].at) // width)
        if n not in most or of(batch) > of(most[n]):
            most[n] = batch
    return list(most.values())


def _waiting(batch: Batch) -> int:
    """Messages that were received and in no table when it began."""
    return (batch.spool or 0) + batch.rows


def _spool(axes: Axes, figures: Figures) -> str:
    every = [batch for batch in figures.batches if batch.spool is not None]
    told = _thinned(every, _waiting)
    times = [_time(figures, batch.at) for batch in told]
    depth = [_waiting(batch) for batch in told]
    axes.fill_between(times, depth, color=COLOURS["amber"], alpha=0.2, linewidth=0)
    axes.plot(times, depth, color=COLOURS["amber"], linewidth=1.1)
    axes.set_ylim(0, max([*depth, 1]) * 1.08)
    _counts(axes, 5)
    _in_time_of_batches(axes, figures)
    return f"Messages that waited when a batch began, at most {max(depth)}."


def _has_delays(figures: Figures) -> bool:
    return any(moment.p50 is not None for moment in figures.moments)


def _stretch(figures: Figures) -> str:
    return f"in each {numbers.duration(figures.wide)}"


def _of_lost(figures: Figures) -> str:
    return _most_of(sum(d.lost > 0 for d in figures.devices))


def _of_gaps(figures: Figures) -> str:
    return _most_of(figures.gappy)


def _most_of(boards: int) -> str:
    return f"the {MOST} of {numbers.count(boards)} boards with most" if boards > MOST else ""


def _how_delayed(figures: Figures) -> str:
    return "from a pack's newest record to its arrival" if _has_delays(figures) else ""


def _each_reboots(figures: Figures) -> str:
    return f"in each {numbers.duration(_reboots_in(figures))}" if figures.reboots else ""


_PLOTS = (
    _Plot("rate", "Messages per second", _rate),
    _Plot("devices", "Devices seen and silent", _seen, _stretch),
    _Plot("loss", "Lost readings by device", _loss, _of_lost, _loss_height),
    _Plot("gaps", "Gaps and silences", _gaps, _of_gaps, _gaps_height),
    _Plot("delay", "Delay", _delays, _how_delayed, lambda f: HEIGHT if _has_delays(f) else LOW),
    _Plot("reboots", "Reboots", _reboots, _each_reboots, lambda f: HEIGHT if f.reboots else LOW),
    _Plot("batches", "Batch time against trigger", _batches),
    _Plot("spool", "Spool depth", _spool, lambda _: "messages that waited when a batch began"),
)


def _bars(
    axes: Axes, devices: Sequence[Device], lengths: Sequence[float], colour: str,
    texts: Sequence[str],
) -> None:  # fmt: skip
    rows = range(len(devices))
    axes.barh(rows, lengths, color=colour, height=0.62)
    for row, length, text in zip(rows, lengths, texts, strict=True):
        axes.annotate(text, (length, row), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(rows, _short([device.name for device in devices]))
    axes.tick_params(axis="y", labelcolor=COLOURS["ink"])
    axes.set_ylim(len(devices) - 0.4, -0.6)
    axes.set_xlim(0, max(lengths) * 1.45)
    axes.grid(axis="y", visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _nothing(axes: Axes, text: str, says: str) -> str:
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, text, ha="center", va="center", color=COLOURS["muted"], transform=axes.transAxes
    )
    return says


def _short(names: Sequence[str], most: int = 14) -> list[str]:
    """Shorten long names: drop the words that all begin with.

    A name that is still too long loses its beginning, as boards' numbers are at the end.
    """
    longest = max(map(len, names))
    if longest <= most:
        return list(names)
    same = 0
    while len(names) > 1 and all(name[: same + 1] == names[0][: same + 1] for name in names):
        same += 1
    words = [n + 1 for n in range(same) if names[0][n] in "-_:./"]
    cut = next((n for n in words if longest - n < most), words[-1] if words else 0)
    return [_tail("…" * (cut > 0) + name[cut:], most) for name in names]


def _tail(name: str, most: int) -> str:
    return name if len(name) <= most else "…" + name[-(most - 1) :]


def _counts(axes: Axes, ticks: int) -> None:
    """The y axis counts."""
    axes.yaxis.set_major_locator(ticker.MaxNLocator(ticks, integer=True))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda n, _: numbers.count(round(n))))


def _legend(axes: Axes, columns: int = 4) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.1)


def _in_time_of_batches(axes: Axes, figures: Figures) -> None:
    """Set the x axis: that of the messages, or of the last batches if no earlier ones are kept."""
    first = min(batch.at for batch in figures.batches)
    last = max(batch.at + batch.seconds for batch in figures.batches)
    if first > figures.span / 2:
        _between(axes, figures, first, max(last, first + 1.0))
    else:
        _in_time(axes, figures, last)


def _in_time(axes: Axes, figures: Figures, last: float = 0.0) -> None:
    """The x axis is time: that of the messages, or on to `last`."""
    _between(axes, figures, 0.0, max(figures.span, figures.step, last))


def _between(axes: Axes, figures: Figures, first: float, last: float) -> None:
    room = 0.01 * (last - first)
    axes.set_xlim(_time(figures, first - room), _time(figures, last + room))
    utc = datetime.timezone.utc
    locator = AutoDateLocator(minticks=3, maxticks=5, tz=utc)
    axes.xaxis.set_major_locator(locator)
    day, minute, second = "%d %b", "%H:%M", "%H:%M:%S"
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(
            locator, tz=utc, show_offset=False,
            formats=["%Y", "%b", day, minute, minute, second],
            zero_formats=["%Y", "%Y", "%b", day, minute, second],
        )
    )  # fmt: skip


def _time(figures: Figures, after: float) -> Any:
    return figures.since + datetime.timedelta(seconds=after)
