"""The devices of a fleet that need a person, and since when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import numbers
from .figures import Device, Figures


class Item(NamedTuple):
    """A device, or a kind of message, that needs a person."""

    name: str
    text: str
    since: float | None
    """Seconds after the first message; None if it is not known."""
    until: float | None = None
    """When it was seen last, if that is another time."""


class Need(NamedTuple):
    """A kind of trouble, and who has it: the worst first."""

    kind: str
    title: str
    advice: str
    items: list[Item]
    of_devices: bool = True


def needs(figures: Figures) -> list[Need]:
    """Return the troubles that there are, the most urgent first."""
    found = [
        Need("silent", "Silent", "Not heard for more than three times as long as usual.",
             _items(figures, lambda d: d.silent, lambda d: d.silent_s or 0, _silent)),
        Need("losing", "Losing messages", "Numbers are missing between messages that came.",
             _items(figures, lambda d: d.lost > 0, lambda d: d.lost, _losing)),
        Need("restarting", "Restarting", "They started again: look at power, watchdog, memory.",
             _items(figures, lambda d: d.reboots > 0, lambda d: d.reboots, _restarting)),
        Need("repeating", "Repeating old numbers", "Most of what they send has numbers that came "
             "before, and is dropped. If they start again without saying so, remove `boot` from "
             "their mapping.",
             _items(figures, lambda d: d.numbered and d.duplicates > d.received,
                    lambda d: d.duplicates, _repeating)),
        Need("clock", "Wrong clock", "Readings came with a time that is far from their arrival. "
             "They are in the table out_of_time.",
             [Item(each.device, numbers.some(each.readings, "reading"), each.since)
              for each in figures.out_of_time]),
        Need("unreadable", "Messages that cannot be read",
             "They are in the table dead_letters, as they came.",
             [Item(each.kind, _topics(each.topics, each.messages), None)
              for each in figures.dead], False),
    ]  # fmt: skip
    return [need for need in found if need.items]


def needy(found: list[Need]) -> set[str]:
    """Return the names of the devices that need a person."""
    return {item.name for need in found if need.of_devices for item in need.items}


def worst(figures: Figures) -> list[Device]:
    """Return all devices, those that need a person first."""
    rank: dict[str, tuple[int, int]] = {}
    for place, need in enumerate(each for each in needs(figures) if each.of_devices):
        for number, item in enumerate(need.items):
            rank.setdefault(item.name, (place, number))
    last = (len(rank), 0)
    return sorted(figures.devices, key=lambda d: (rank.get(d.name, last), d.name))


def _items(
    figures: Figures, has: Callable[[Device], bool], much: Callable[[Device], float],
    item: Callable[[Device], Item],
) -> list[Item]:  # fmt: skip
    chosen = sorted(filter(has, figures.devices), key=lambda d: (-much(d), d.name))
    return [item(device) for device in chosen]


def _silent(of: Device) -> Item:
    connected = ", though it is online" if of.status == "online" else ""
    return Item(of.name, f"for {numbers.silence(of.silent_s)}{connected}", of.heard)


def _losing(of: Device) -> Item:
    text = f"{numbers.some(of.lost, 'message')}, {numbers.percent(of.loss)}"
    return Item(of.name, text, of.lost_since, of.lost_until)


def _restarting(of: Device) -> Item:
    text = numbers.some(of.reboots, "restart")
    return Item(of.name, text, of.restarted_since, of.restarted_until)


def _repeating(of: Device) -> Item:
    return Item(of.name, numbers.some(of.duplicates, "message"), None)


def _topics(topics: Sequence[str], messages: int) -> str:
    some = numbers.some(messages, "message")
    return f"{some}, on {', '.join(dict.fromkeys(topics))}" if topics else some
