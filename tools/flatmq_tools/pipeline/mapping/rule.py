"""A rule of a mapping: which messages it is for, and how their payload becomes measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from .encodings import Csv, Field
from .pack import LONGEST, PackError, Record, named, readable
from .paths import Parts, Path, PathPattern
from .times import TimeField
from .topics import TopicPattern

FORMATS = ("json", "cbor", "csv", "plain", "any", "senml", "sparkplug", "nothing")
WORDS: Mapping[str, bool | float | str] = {"on": True, "off": False, "true": True, "false": False}
"""What these words mean unless a mapping says otherwise; in small letters."""
PATH = "{path}"
_PLACES = 20_000  # paths of a rule whose columns are remembered
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.IGNORECASE
)
_PART = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class Template(NamedTuple):
    """A text with `{names}` in it."""

    text: str

    @property
    def names(self) -> list[str]:
        """The names, in their order."""
        return _PART.findall(self.text)

    def filled(self, values: Mapping[str, str]) -> str:
        """The text with the values of its names; names without a value stay."""
        return _PART.sub(lambda part: values.get(part[1], part[0]), self.text)


class Quantity(NamedTuple):
    """The name and unit of the values at some paths, and how their numbers are scaled."""

    unit: str = ""
    name: str | None = None
    """The path, unless given."""
    scale: float = 1.0
    offset: float = 0.0
    none: Sequence[float] = ()
    """Numbers, before they are scaled, that stand for no value."""


@dataclass(frozen=True)
class Rule:
    """One `[[rule]]` of a mapping file. What its fields mean is in docs/mappings.md."""

    name: str
    topics: Sequence[TopicPattern]
    format: str
    device: Template | None = None
    device_from: Path | None = None
    quantity: Template = field(default_factory=lambda: Template(PATH))
    select: Sequence[PathPattern] = ()
    ignore: Sequence[PathPattern] = ()
    strip: Sequence[Path] = ()
    values: Sequence[tuple[PathPattern, Quantity]] = ()
    words: Mapping[str, bool | float | str] = field(default_factory=lambda: dict(WORDS))
    text_numbers: bool = False
    time: TimeField | None = None
    boot: Path | None = None
    seq: Path | None = None
    csv: Csv = field(default_factory=Csv)
    decode: Sequence[Field] = ()
    each: Parts | None = None
    arrays: Sequence[tuple[PathPattern, Path]] = ()
    when: Sequence[tuple[Path, Sequence[Any]]] = ()

    def unused(self) -> dict[str, list[str]]:
        """Return the patterns that have matched nothing so far, by the keys that have them."""
        values, arrays = ([one for one, _ in table] for table in (self.values, self.arrays))
        every = {
            "select": self.select, "ignore": self.ignore, "values": values, "arrays": arrays,
            "decode": [field.path for field in self.decode],
        }  # fmt: skip
        found = {key: [one.text for one in all_ if not one.used] for key, all_ in every.items()}
        return {key: texts for key, texts in found.items() if texts}


class Place(NamedTuple):
    """The meaning of a value."""

    name: str
    quantity: Quantity
    plain: bool
    """Whether its numbers are taken as they are."""


Places = dict[Path, Place | None]


class Bound:
    """A rule with what a topic name says.

    places   finds the memory for a name of a quantity, which bounds of one rule may share
    """

    def __init__(
        self, rule: Rule, levels: Mapping[str, str], places: Callable[[str], Places]
    ) -> None:
        self.rule = rule
        self._levels, self._places_of = levels, places
        self._device = "" if rule.device is None else rule.device.filled(levels)
        self._quantity = rule.quantity.filled({**levels, "path": PATH})
        self._places = places(self._quantity)

    def part(self, names: Mapping[str, str]) -> Bound:
        """Return the rule for a part of a document that has these names. Raises PackError."""
        for name, text in names.items():
            named(name, text)
        return Bound(self.rule, {**self._levels, **names}, self._places_of)

    @cached_property
    def device(self) -> str:
        """The device that the topic names; empty if only the payload does. Raises PackError."""
        return named("device", self._device) if self.rule.device is not None else ""

    def place(self, path: Path) -> Place | None:
        """The name and the column for values at a path; None if they are ignored.

        Raises PackError.
        """
        try:
            return self._places[path]
        except KeyError:
            if len(self._places) >= _PLACES:
                self._places.clear()
            found = self._placed(path, self._quantity)
            if sum(map(len, path)) <= LONGEST:
                self._places[path] = found
            return found

    @cached_property
    def whole(self) -> Place | None:
        """The same for a payload that is one value: its path is the name that it gets."""
        path = tuple(filter(None, self._quantity.replace(PATH, "").split("/")))
        if not path:
            raise PackError("the value has no name: the rule needs a `quantity`")
        return self._placed(path, "")

    def _placed(self, path: Path, quantity: str) -> Place | None:
        rule = self.rule
        if (rule.select and not _covering(rule.select, path)) or _covering(rule.ignore, path):
            return None
        found = next((made for pattern, made in rule.values if pattern.match(path)), Quantity())
        left = path
        for head in rule.strip:
            if len(path) > len(head) and path[: len(head)] == head:
                left = path[len(head) :]
                break
        own = "/".join(left) if found.name is None else found.name
        if quantity and (PATH in quantity or found.name is None):
            own = quantity.replace(PATH, own).strip("/")
        plain = found.scale == 1.0 and found.offset == 0.0 and not found.none
        return Place(named("quantity", own), found, plain)


def _covering(patterns: Sequence[PathPattern], path: Path) -> list[PathPattern]:
    """The patterns that cover a path. Each of them is asked: see `Rule.unused`."""
    return [pattern for pattern in patterns if pattern.covers(path)]


def record(place: Place, raw: Any, time: int | None, rule: Rule, numbers: bool) -> Record | None:
    """The record of a value, or None for null.

    A number that no double holds has a record without a value. `numbers`: texts of digits are
    numbers. Raises PackError.
    """
    name, quantity, _ = place
    if isinstance(raw, str):
        word = rule.words.get(raw.lower())
        if word is not None:
            raw = word
        elif numbers and _NUMBER.fullmatch(raw):
            raw = float(raw)
    if raw is True or raw is False:
        return Record(name, "", time, None, None, raw)
    if isinstance(raw, str):
        return Record(name, "", time, None, readable(name, raw))
    if raw is None or raw in quantity.none:
        return None
    try:
        value = raw * quantity.scale + quantity.offset
    except OverflowError:
        value = math.nan
    return Record(name, quantity.unit, time, value if math.isfinite(value) else None)
