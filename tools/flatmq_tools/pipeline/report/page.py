"""The report as one page of HTML that needs nothing else: no script, no file, no network."""

from __future__ import annotations

import html
import string
from collections.abc import Sequence
from pathlib import Path

from . import numbers
from .figures import Device, Figures
from .pictures import Picture

MOST_DEVICES = 100
MOST_VALUES = 200
_TEMPLATE = Path(__file__).with_name("page.html")


def page(figures: Figures, pictures: Sequence[Picture]) -> str:
    """The page, UTF-8."""
    summary = numbers.summary(figures)
    named = {number.name: number.text for number in summary}
    tables = [_devices(figures), '<div class="two">', _newest(figures), _dead(figures), "</div>"]
    return string.Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=f"{_some(named['messages'], 'message')} from {_some(named['devices'], 'device')}",
        when=_when(figures),
        remarks="".join(f'<p class="when">{_safe(text)}</p>\n' for text in figures.remarks),
        tiles="\n".join(map(_tile, summary)),
        pictures="\n".join(map(_picture, pictures)),
        tables="\n".join(tables),
    )


def _some(number: str, what: str) -> str:
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def _when(figures: Figures) -> str:
    same = figures.since.date() == figures.until.date()
    until = f"{figures.until:%H:%M:%S}" if same else f"{figures.until:%d %b %Y, %H:%M:%S}"
    return f"{figures.since:%d %b %Y, %H:%M:%S} to {until} UTC"


def _tile(number: numbers.Number) -> str:
    return (
        f'<div class="tile {number.mood}"><dt>{_safe(number.name)}</dt>'
        f'<dd class="number">{_safe(number.text)}</dd>'
        f'<dd class="note">{_safe(number.note)}</dd></div>'
    )


def _picture(picture: Picture) -> str:
    note = f" <small>{_safe(picture.note)}</small>" if picture.note else ""
    return f'<figure class="card"><h2>{_safe(picture.title)}{note}</h2>\n{picture.svg}\n</figure>'


def _devices(figures: Figures) -> str:
    heads = (
        "device", "status", "n:silent for", "n:received", "n:lost", "n:loss", "n:twice",
        "n:out of order", "n:delay 50 %", "n:95 %", "n:99 %", "n:boots", "n:reboots",
    )  # fmt: skip
    rows = [_device(device) for device in numbers.worst(figures.devices)[:MOST_DEVICES]]
    return _table("Devices, those that need a look first", heads, rows, len(figures.devices))


def _device(of: Device) -> list[tuple[str, str]]:
    """Cells: class and text."""
    delays = [("n", numbers.milliseconds(ms)) for ms in (of.p50, of.p95, of.p99)]

    def known(cell: tuple[str, str]) -> tuple[str, str]:
        return cell if of.numbered else ("n zero", numbers.UNKNOWN)

    return [
        ("", of.name),
        ("", of.status or numbers.UNKNOWN),
        ("n odd" if of.silent else "n", numbers.silence(of.silent_s)),
        ("n", numbers.count(of.received)),
        known(_number(of.lost, "bad")),
        known(("n bad" if of.lost else "n zero", numbers.percent(of.loss) if of.lost else "0")),
        _number(of.duplicates),
        known(_number(of.reordered)),
        *delays,
        known(("n", numbers.count(of.boots))),
        known(_number(of.reboots, "odd")),
    ]


def _number(number: int, mood: str = "") -> tuple[str, str]:
    return f"n {mood if number else 'zero'}".rstrip(), numbers.count(number)


def _newest(figures: Figures) -> str:
    heads = ("device", "quantity", "n:value", "n:ago")
    rows = [
        [("", v.device), ("", v.quantity), ("n", numbers.value(v)),
         ("n", numbers.silence(max(figures.span - v.at, 0)))]
        for v in figures.newest[:MOST_VALUES]
    ]  # fmt: skip
    return _table("Newest values", heads, rows, len(figures.newest))


def _dead(figures: Figures) -> str:
    if not figures.dead:
        return ""
    heads = ["reason", "n:messages"]
    rows = [[("", each.kind), ("n", numbers.count(each.messages))] for each in figures.dead]
    if any(each.examples for each in figures.dead):
        heads.append("topics of the newest")
        for row, each in zip(rows, figures.dead, strict=True):
            topics = dict.fromkeys(example.topic for example in each.examples)
            row.append(("", ", ".join(topics) or numbers.UNKNOWN))
    return _table("Dead letters", heads, rows, len(rows))


def _table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]], of: int
) -> str:
    head = "".join(
        f'<th class="n">{_safe(h[2:])}</th>' if h.startswith("n:") else f"<th>{_safe(h)}</th>"
        for h in heads
    )
    body = "\n".join(
        "<tr>" + "".join(f'<td class="{kind}">{_cell(text)}</td>' for kind, text in row) + "</tr>"
        for row in rows
    )
    more = f'<p class="more">{numbers.count(len(rows))} of {numbers.count(of)}</p>'
    name = _safe(title)
    return f"""<section class="card"><h2>{name}</h2>
<div class="wide" tabindex="0" role="region" aria-label="{name}">
<table><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>{more if of > len(rows) else ""}</section>"""


def _cell(text: str) -> str:
    """A name of several levels may end a line after each."""
    return _safe(text).replace("/", "/<wbr>")


def _safe(text: str) -> str:
    return html.escape(text)
