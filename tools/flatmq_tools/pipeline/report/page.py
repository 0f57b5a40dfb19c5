"""The report as one page of HTML that needs nothing else: no file, no network."""

from __future__ import annotations

import base64
import datetime
import hashlib
from pathlib import Path
from typing import Any

import jinja2

from . import charts, numbers
from .figures import Device, Figures
from .needs import Need, needs, needy, worst

_HERE = Path(__file__).parent
_LINES = ("blue", "amber", "teal", "red", "violet", "muted")


def page(figures: Figures, written: datetime.datetime | None = None) -> str:
    """Return the page.

    written  the time of writing, if the report goes up to now: silence after the newest message
             is said then
    """
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    ).get_template("page.html")  # fmt: skip
    devices = worst(figures)
    place = {device.name: n for n, device in enumerate(devices)}
    found = needs(figures)
    scripts = [charts.library(), (_HERE / "page.js").read_text(encoding="utf-8")]
    quiet = None if written is None else (written - figures.until).total_seconds()

    def moment(seconds: float | None) -> datetime.datetime | None:
        if seconds is None:
            return None
        return figures.since + datetime.timedelta(seconds=max(seconds, 0))

    return template.render(
        figures=figures, needs=found, place=place, moment=moment, numbers=numbers,
        needy=len(needy(found) & {*place}),
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        quiet=numbers.duration(quiet) if quiet and quiet > max(3 * figures.wide, 3600) else "",
        scripts=scripts, hashes=[_hash(script) for script in scripts],
        data=_data(figures, devices, found, place),
    )  # fmt: skip


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(
    figures: Figures, devices: list[Device], found: list[Need], place: dict[str, int]
) -> dict[str, Any]:  # fmt: skip
    """Return what the page's script shows. Times are seconds since 1970."""
    start = figures.since.timestamp()
    kinds: dict[int, list[int]] = {}
    of_devices = [need for need in found if need.of_devices]
    for number, need in enumerate(of_devices):
        for item in need.items:
            if item.name in place:
                kinds.setdefault(place[item.name], []).append(number)
    data: dict[str, Any] = {
        "until": figures.until.timestamp(), "drawing": charts.drawing(),
        "needs": [[need.kind, need.title] for need in of_devices],
        "devices": {
            "name": [d.name for d in devices],
            "needs": [kinds.get(n, []) for n in range(len(devices))],
            "heard": [None if d.heard is None else round(start + d.heard) for d in devices],
            "status": [d.status or "" for d in devices],
            "received": [d.received for d in devices],
            "lost": [d.lost if d.numbered else None for d in devices],
            "twice": [d.duplicates for d in devices],
            "late": [d.reordered if d.numbered else None for d in devices],
            "restarts": [d.reboots if d.numbered else None for d in devices],
            "delay": charts.short([d.p50 for d in devices]),
            "delay99": charts.short([d.p99 for d in devices]),
        },
        "gaps": {}, "newest": {}, "fleet": charts.fleet(figures),
        "pipeline": charts.pipeline([b._replace(at=start + b.at) for b in figures.batches]),
        "values": [],
    }  # fmt: skip
    for gap in figures.gaps:
        data["gaps"].setdefault(place.get(gap.device), []).append(
            [round(start + gap.since), round(start + gap.until), gap.missing]
        )
    for of in figures.newest:
        data["newest"].setdefault(place.get(of.device), []).append(
            [of.quantity, numbers.value(of), round(start + of.at)]
        )
    if figures.measured is not None:
        grid = (start + figures.measured.at, figures.measured.step)
        for quantity in figures.measured.quantities:
            chart = charts.value(quantity, grid, _LINES)
            if quantity.bands:
                chart["curves"] = {
                    place[name]: charts.short(line)
                    for name, line in quantity.curves.items() if name in place
                }  # fmt: skip
            data["values"].append(chart)
    return data
