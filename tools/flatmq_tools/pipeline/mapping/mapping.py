"""A mapping: rules in an order, the first of which reads a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from . import document, sparkplug
from .births import BIRTHS
from .encodings import Payload
from .pack import LONGEST, Pack, PackError, printable, readable
from .rule import Bound, Places, Rule
from .sparkplug import Names

SenML = Callable[[str, bytes, int | None, str | None], list[Pack]]
"""Reads a SenML pack: topic name, payload, when it was received, and the device that a rule takes
from the topic name."""
_TOPICS = 1 << 14  # topic names whose rules are remembered,
_NAMES = 1 << 12  # and names of quantities of a rule


class Reading(NamedTuple):
    """The result of reading a message, and the rule that read it."""

    rule: Rule | None
    """None if no rule is for the message."""
    packs: list[Pack]
    reason: str | None
    """Why the message is a dead letter, or None."""


class Mapping:
    """The rules of mapping files, tried in order.

    senml   reads the messages of rules whose format is senml
    """

    def __init__(self, rules: Sequence[Rule], senml: SenML | None = None) -> None:
        self.rules = tuple(rules)
        self._read_senml = senml
        self._bound = lru_cache(_TOPICS)(self._binding)
        self._places = [lru_cache(_NAMES)(_no_places) for _ in self.rules]

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapping, (self.rules, self._read_senml)

    def _bounds(self, topic: str) -> tuple[Bound, ...]:
        """Return `_binding` of a topic; names of a usual length are remembered."""
        return self._bound(topic) if len(topic) <= LONGEST else self._binding(topic)

    def _binding(self, topic: str) -> tuple[Bound, ...]:
        """The rules that are for a topic name, up to the first that takes all of its messages."""
        found = []
        short = len(topic) <= LONGEST
        for rule, places in zip(self.rules, self._places, strict=True):
            for pattern in rule.topics:
                levels = pattern.match(topic)
                if levels is not None:
                    found.append(Bound(rule, levels, places if short else _no_places))
                    break
            if found and found[-1].rule is rule and not rule.when and rule.each is None:
                break
        return tuple(found)

    def names(self, topic: str) -> list[str]:
        """The names of the rules for a topic name."""
        return [bound.rule.name for bound in self._bounds(topic)]

    @property
    def filters(self) -> list[str]:
        """Topic filters of MQTT that cover the rules, without those that others cover."""
        each = list(dict.fromkeys(p.filter for rule in self.rules for p in rule.topics))
        return [
            one for one in each
            if not any(_covers(other.split("/"), one.split("/")) for other in each if other != one)
        ]  # fmt: skip

    def senml(self, topic: str) -> Bound | None:
        """The rule for this topic name if its format is senml; None for others.

        Raises PackError.
        """
        bound = self._bounds(topic)
        return bound[0] if bound and bound[0].rule.format == "senml" else None

    @property
    def births(self) -> bool:
        """True if messages may need the birth certificates of Sparkplug B."""
        return any(rule.format == "sparkplug" for rule in self.rules)

    def is_birth(self, topic: str) -> bool:
        """Return whether a message on this topic is a birth certificate of Sparkplug B."""
        return "BIRTH/" in topic and any(
            pattern.match(topic) is not None
            for rule in self.rules if rule.format == "sparkplug"
            for pattern in rule.topics if set(pattern.text.split("/")) & set(BIRTHS)
        )  # fmt: skip

    def read(
        self, topic: str, payload: bytes, received: int | None, names: Names | None = None
    ) -> list[Pack] | None:
        """Return what a message says; None if no rule matches it.

        `received` is in microseconds since 1970. Raises PackError if it is a dead letter,
        and never another exception.

        names   finds the metrics of Sparkplug B that a message leaves out: see `births.Sessions`
        """
        reading = self.reading(topic, payload, received, names)
        if reading.reason is not None:
            raise PackError(reading.reason)
        return None if reading.rule is None else reading.packs

    def reading(
        self, topic: str, payload: bytes, received: int | None, names: Names | None = None
    ) -> Reading:
        """Read a message as `read` does, and return the rule too; raises nothing."""
        rule = None
        try:
            readable("topic", topic)
            content = None
            for bound in self._bounds(topic):
                rule = bound.rule
                if rule.format == "nothing":
                    return Reading(rule, [], None)
                content = content or Payload(payload)
                packs = self._read(bound, topic, content, received, names)
                if packs is not None:
                    return Reading(rule, packs, None)
        except PackError as error:
            return Reading(rule, [], printable(str(error)))
        except Exception as error:  # whatever a parser raises, the message alone is at fault
            return Reading(rule, [], printable(f"{type(error).__name__}: {error}"))
        return Reading(None, [], None)

    def _read(
        self, bound: Bound, topic: str, payload: Payload, received: int | None, names: Names | None
    ) -> list[Pack] | None:
        match bound.rule.format:
            case "json" | "cbor" | "csv":
                return document.read(bound, payload, received)
            case "any" if payload.data.lstrip()[:1] in (b"{", b"["):
                return document.read(bound, payload, received)
            case "plain" | "any":
                return document.read_plain(bound, payload, received)
            case "sparkplug":
                return sparkplug.read(bound, payload.data, received, names)
        if self._read_senml is None:
            raise PackError("this mapping was made without a reader of SenML")
        return self._read_senml(topic, payload.data, received, bound.device or None)


def _no_places(_: str) -> Places:
    return {}


def _covers(wide: list[str], narrow: list[str]) -> bool:
    """Return whether a topic filter matches all topic names that another one matches."""
    if wide[0] in ("+", "#") and narrow[0].startswith("$"):
        return False
    for number, level in enumerate(wide):
        if level == "#":
            return True
        if number >= len(narrow) or narrow[number] == "#":
            return False
        if level not in ("+", narrow[number]):
            return False
    return len(wide) == len(narrow)
