"""The report's numbers as people read them: the same on the page and in the terminal."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .figures import Batch, Device, Figures, Value

UNITS = {"Cel": "°C", "%RH": "%", "%EL": "%"}  # as people write SenML's units (RFC 8428, 12.1)
UNKNOWN = "–"  # noqa: RUF001
_STATUSES = 4  # that are named
_THIN = "\N{NARROW NO-BREAK SPACE}"


class Number(NamedTuple):
    """A number with its name, and a word on it; `mood` is "good", "bad", "odd" or empty."""

    name: str
    text: str
    note: str = ""
    mood: str = ""


def summary(figures: Figures) -> list[Number]:
    """Return what needs a look, then the sums of the fleet."""
    devices = figures.devices
    silent = sum(d.silent for d in devices)
    paused = figures.paused - silent
    dead = sum(each.messages for each in figures.dead)
    wrong = sum(each.readings for each in figures.out_of_time)
    return [
        Number("silent now", count(silent),
               f"{some(paused, 'other')} for a while" if paused > 0
               else _who(d.name for d in devices if d.silent), "odd" if silent else "good"),
        Number("restarts", count(sum(d.reboots for d in devices)),
               _who(d.name for d in devices if d.reboots)),
        Number("wrong times", count(wrong),
               f"most from {figures.out_of_time[0].device}" if wrong
               else "every time was near its arrival", "odd" if wrong else "good"),
        Number("unreadable", count(dead),
               figures.dead[0].kind if dead else "every message was read",
               "bad" if dead else "good"),
        *sums(figures),
    ]  # fmt: skip


def sums(figures: Figures) -> list[Number]:
    """Return the sums of the fleet."""
    devices = figures.devices
    lost, duplicates, reordered, unheard = (
        sum(getattr(d, name) for d in devices)
        for name in ("lost", "duplicates", "reordered", "unheard")
    )
    p50, p95, p99 = figures.delays
    mean = figures.messages / figures.span if figures.span else 0.0
    numbered = [d for d in devices if d.numbered]
    return [
        Number("devices", count(len(devices)), statuses(devices)),
        Number("messages", count(figures.messages),
               f"in {duration(figures.span)}, {decimal(mean)} per second"),
        _lost(lost, unheard, numbered, len(devices)),
        Number("delay, median", milliseconds(p50),
               f"95 %: {milliseconds(p95)}, 99 %: {milliseconds(p99)}" if p50 is not None
               else "no message has a time"),
        Number("copies", count(duplicates), "came again, and were dropped"),
        Number("out of order", count(reordered), "came after a later one"),
    ]  # fmt: skip


def _lost(lost: int, unheard: int, numbered: Sequence[Device], devices: int) -> Number:
    if devices and not numbered:
        return Number("lost messages", UNKNOWN, "no device numbers its messages")
    sent = lost + sum(d.received for d in numbered)
    note = percent(lost / sent) if lost else "nothing missing"
    if len(numbered) < devices:
        note += f" of {some(len(numbered), 'device')} with numbers"
    if unheard:
        note += f"; {count(unheard)} before anybody listened"
    return Number("lost messages", count(lost), note, "bad" if lost else "good")


def late(batches: Sequence[Batch]) -> str:
    """Return in a sentence how the pipeline kept up."""
    took = sorted(batch.seconds for batch in batches)
    many = sum(batch.late for batch in batches)
    return (
        f"{some(len(batches), 'batch', 'batches')}; half of them took less than "
        f"{duration(took[len(took) // 2])}, and {count(many)} longer than the interval."
    )


def statuses(devices: list[Device]) -> str:
    """Return how many devices have each status, as text."""
    found = Counter(device.status or "no status" for device in devices)
    common = [f"{count(n)} {name}" for name, n in found.most_common(_STATUSES)]
    return ", ".join(common) + (" and others" if len(found) > _STATUSES else "")


def _who(names: Iterable[str]) -> str:
    every = list(names)
    if not every:
        return "none"
    shown = every[: 2 if len(", ".join(every[:2])) <= 24 else 1]
    more = len(every) - len(shown)
    return ", ".join(shown) + (f" and {count(more)} more" if more else "")


def some(number: int, one: str, many: str = "") -> str:
    """1 device, 2 devices."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def local(moment: datetime.datetime) -> str:
    """Return a time in the zone of this machine, which it names."""
    return f"{moment.astimezone():%d %b %Y, %H:%M %Z}"


def value(of: Value) -> str:
    """With its unit."""
    if isinstance(of.value, bool):
        return "true" if of.value else "false"
    if isinstance(of.value, str):
        return of.value
    return f"{of.value:.10g}{_THIN}{UNITS.get(of.unit, of.unit)}".rstrip(_THIN)


def count(number: int) -> str:
    """Thousands apart: 12 345."""
    return f"{number:,}".replace(",", _THIN)


def decimal(number: float) -> str:
    """Of about three figures."""
    return count(round(number)) if abs(number) >= 100 else f"{number:.3g}"


def percent(part: float) -> str:
    """0.00123: 0.12 %."""
    return f"{part * 100:.2g}{_THIN}%" if part < 0.995 else f"{part * 100:.0f}{_THIN}%"


def milliseconds(ms: float | None) -> str:
    """12 ms, 1.4 s, 2 h."""
    if ms is None:
        return UNKNOWN
    if abs(ms) < 1000:
        return f"{ms:.3g}{_THIN}ms"
    return ("−" if ms < 0 else "") + duration(abs(ms) / 1000)  # noqa: RUF001


def silence(seconds: float | None) -> str:
    """As `duration`, to a tenth of a second: what is shorter says nothing of a board."""
    return duration(None if seconds is None else round(seconds, 1))


def duration(seconds: float | None) -> str:
    """1.4 s, 2 min 5 s, 3 h, 2 d 4 h."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.3g}{_THIN}s"
    whole = round(seconds)
    for big, small, size in (("d", "h", 3600), ("h", "min", 60), ("min", "s", 1)):
        per = {"d": 24, "h": 60, "min": 60}[big]
        if whole >= per * size:
            above, below = divmod(whole // size, per)
            return f"{above}{_THIN}{big}" + (f" {below}{_THIN}{small}" if below else "")
    return f"{whole}{_THIN}s"
