"""The report's numbers as people read them: the same on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .figures import Device, Figures, Value

UNITS = {"Cel": "°C", "%RH": "%", "%EL": "%"}  # as people write SenML's units (RFC 8428, 12.1)
UNKNOWN = "–"  # noqa: RUF001
_THIN = "\N{NARROW NO-BREAK SPACE}"


class Number(NamedTuple):
    """A number with its name, and a word on it; `mood` is "good", "bad", "odd" or empty."""

    name: str
    text: str
    note: str = ""
    mood: str = ""


def summary(figures: Figures) -> list[Number]:
    """Return the most important figures, in the order in which a reader looks for them."""
    devices = figures.devices
    lost, received = (sum(getattr(d, name) for d in devices) for name in ("lost", "received"))
    duplicates = sum(d.duplicates for d in devices)
    reordered = sum(d.reordered for d in devices)
    silent = sum(d.silent for d in devices)
    unheard = sum(d.unheard for d in devices)
    reboots = sum(d.reboots for d in devices)
    dead = sum(each.messages for each in figures.dead)
    p50, p95, p99 = figures.delays
    most = max((m.messages / figures.step for m in figures.moments), default=0.0)
    mean = figures.messages / figures.span if figures.span else 0.0
    numbered = [d for d in devices if d.numbered]
    part = lost / (lost + sum(d.received for d in numbered)) if lost else 0.0
    return [
        Number("messages", count(figures.messages), f"in {duration(figures.span)}"),
        Number("messages per second", decimal(mean), f"at most {decimal(most)}"),
        Number("devices", count(len(devices)), statuses(devices)),
        Number("silent", count(silent), _who(d.name for d in devices if d.silent),
               "odd" if silent else "good"),
        Number("readings", count(received),
               f"{count(unheard)} before anybody listened" if unheard else "each counted once"),
        _lost(lost, part, len(numbered), len(devices)),
        Number("duplicates", count(duplicates),
               "dropped by device, boot, seq" if len(numbered) == len(devices)
               else "by number, or marked by the broker"),
        Number("out of order", count(reordered), "later than a larger seq"),
        Number("delay, median", milliseconds(p50),
               f"95 %: {milliseconds(p95)}, 99 %: {milliseconds(p99)}" if p50 is not None
               else "no pack has a time"),
        Number("reboots", count(reboots), _who(d.name for d in devices if d.reboots)),
        Number("dead letters", count(dead),
               figures.dead[0].kind if dead else "every pack was read", "bad" if dead else "good"),
        Number("out of time", count(figures.out_of_time),
               f"most from {figures.out_of_time_of}" if figures.out_of_time
               else "every time was near its arrival", "odd" if figures.out_of_time else "good"),
        _batches(figures),
    ]  # fmt: skip


def _lost(lost: int, part: float, numbered: int, devices: int) -> Number:
    if devices and not numbered:
        return Number("lost", UNKNOWN, "no device numbers its messages")
    note = percent(part) if lost else "nothing missing"
    if numbered < devices:
        note += f" of {count(numbered)} {'device' if numbered == 1 else 'devices'} with numbers"
    return Number("lost", count(lost), note, "bad" if lost else "good")


def _batches(figures: Figures) -> Number:
    if not figures.batches:
        return Number("batches", UNKNOWN, "no progress was noted")
    late = sum(batch.late for batch in figures.batches)
    took = sorted(batch.seconds for batch in figures.batches)
    note = f"median {duration(took[len(took) // 2])}, {count(late)} longer than the trigger"
    return Number("batches", count(len(figures.batches)), note)


def worst(devices: list[Device]) -> list[Device]:
    """Those that need a look first."""
    return sorted(devices, key=lambda d: (-d.silent, -d.lost, -d.reboots, -d.duplicates, d.name))


def statuses(devices: list[Device]) -> str:
    """Return how many devices have each status, as text."""
    found: dict[str, int] = {}
    for device in devices:
        found[device.status or "no status"] = found.get(device.status or "no status", 0) + 1
    return ", ".join(
        f"{count(n)} {name}" for name, n in sorted(found.items(), key=lambda i: -i[1])
    )


def _who(names: Iterable[str]) -> str:
    every = list(names)
    if not every:
        return "none"
    shown = every[: 2 if len(", ".join(every[:2])) <= 24 else 1]
    more = len(every) - len(shown)
    return ", ".join(shown) + (f" and {count(more)} more" if more else "")


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
