"""Read mapping files: TOML, with an array of rules."""

from __future__ import annotations

import math
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path as File
from typing import Any

from .encodings import BYTES, INNER, Csv, Field, Layout
from .mapping import Mapping, SenML
from .paths import Parts, Path, PathPattern, exact
from .rule import FORMATS, PATH, WORDS, Quantity, Rule, Template
from .times import FORMS, SCALES, TimeField
from .topics import TopicPattern

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = File(__file__).with_name("shipped")
_GENERAL = ("cbor", "json", "plain")  # shipped mappings for the topics of any maker
_WIDE = ("shelly-gen2",)  # and those for topics that begin with the device
_TOP = ("about", "base", "defaults", "name", "rule")
_PLAIN = ("device", "quantity", "select", "ignore", "strip", "values", "words")
_ANY = (*_PLAIN, "text_numbers", "time", "arrays")
_DOCUMENT = (*_ANY, "device_from", "boot", "seq", "when", "each", "decode")
KEYS = {
    "json": _DOCUMENT,
    "cbor": _DOCUMENT,
    "csv": (*_DOCUMENT, "columns", "delimiter"),
    "any": _ANY,
    "plain": _PLAIN,
    "sparkplug": _PLAIN,
    "senml": ("device",),
    "nothing": (),
}
"""The keys that a rule of each format may have, beside `name`, `topic` and `format`."""
_ALWAYS = ("name", "topic", "format")
_ALL = KEYS["csv"]
_DEFAULTS = tuple(key for key in ("format", *_ALL) if key != "when")
_MERGED_TABLES, _MERGED_LISTS = ("values", "words"), ("ignore",)


class MappingError(ValueError):
    """A mapping file breaks a rule.

    The text names the file, the table, the key, the rule and the value.
    """


def shipped() -> dict[str, str]:
    """The mappings that come with flatmq: their names, and what each is for."""
    found = {}
    for file in sorted(SHIPPED.glob("*.toml")):
        found[file.stem] = str(tomllib.loads(file.read_text(encoding="utf-8"))["about"])
    return found


def with_base() -> list[str]:
    """Return the shipped mappings for the topics of one maker.

    Those whose topics begin with the device, as topics of others may do, are last.
    """
    return [name for name in shipped() if name not in (*_GENERAL, *_WIDE)] + [*_WIDE]


def load(
    names: Sequence[str], telemetry: Sequence[str] = (), senml: SenML | None = None
) -> Mapping:
    """The mapping that files make together, in their order.

    names      files, or names of shipped mappings; NAME=BASE has other topics in front
    telemetry  topic filters of SenML packs, for which no rule of the files is needed
    senml      reads these, and the messages of rules whose format is senml
    """
    rules = [rule for name in names for rule in _rules(name)]
    if telemetry:
        patterns = [TopicPattern(one) for one in telemetry]
        rules.append(Rule("senml (built in)", patterns, "senml"))
    return Mapping(rules, senml)


def text(name: str) -> str:
    """The text of a mapping file or a shipped mapping. Raises MappingError."""
    file = _file(name)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MappingError(f"{file}: {error}") from error


def _file(name: str) -> File:
    known = SHIPPED / f"{name}.toml"
    if "/" not in name and "\\" not in name and known.is_file():
        return known
    if not File(name).is_file():
        raise MappingError(
            f"a mapping must be a file or one of {', '.join(shipped())}, not {name!r}"
        )
    return File(name)


def _rules(name: str) -> list[Rule]:
    base = None
    if "=" in name and not File(name).is_file():
        name, _, base = name.partition("=")
    return parse(text(name), str(_file(name)), base)


def parse(source: str, file: str, base: str | None = None) -> list[Rule]:
    """The rules of a mapping file. `base` is used instead of its own. Raises MappingError."""
    try:
        document = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise MappingError(f"{file}: not TOML: {error}") from error
    top = _Table(file, document)
    top.known(_TOP)
    title = top.text("name", File(file).stem)
    top.text("about", "")
    own = top.text("base", "")
    base = own if base is None else base
    if base and (set(base) & set("+#{}") or base.endswith("/")):
        raise top.error("base", "must be a topic name without wildcards and / at its end", base)
    defaults = _Table(f"{file}: [defaults]", top.table("defaults", {}))
    defaults.known(_DEFAULTS)
    if "format" in defaults.data:
        defaults.one_of("format", FORMATS)
    _optional(defaults)
    rules = top.get("rule", [], list, "must be an array of tables, [[rule]]")
    if not rules:
        raise MappingError(f"{file}: rule: at least one [[rule]] is needed")
    found = []
    for number, rule in enumerate(rules, 1):
        if not isinstance(rule, dict):
            raise top.error("rule", "must be an array of tables, [[rule]]", rule)
        named = f" ({rule['name']})" if isinstance(rule.get("name"), str) else ""
        where = f"{file}: [[rule]] {number}{named}"
        found.append(_rule(where, rule, defaults, title, number, base))
    return found


def _rule(
    where: str, given: dict[str, Any], defaults: _Table, title: str, number: int, base: str
) -> Rule:
    table = _Table(where, {**given})
    form = _Table(where, {**defaults.data, **given}).one_of("format", FORMATS)
    for key, value in given.items():
        if key in _ALL and key not in KEYS[form]:
            raise table.error(key, f"is not for the format {form}", value)
    table.known((*_ALWAYS, *_ALL))
    _merge(table, defaults, KEYS[form])
    topics = _topics(table, base)
    levels = set.intersection(*(set(topic.names) for topic in topics))
    title = f"{title}: {table.text('name', str(number))}"
    if form == "nothing" or (form == "senml" and not {"device"} & (levels | {*table.data})):
        return Rule(title, topics, form)
    if form == "csv":
        table.data = {"each": "*", "text_numbers": True, **table.data}
    optional = _optional(table)
    if optional["each"] is not None:
        parts = set(optional["each"].names)
        if any(parts & set(topic.names) for topic in topics):
            raise table.error("each", "must not have a name that a topic has", table.data["each"])
        levels |= parts
    device, device_from = _device(table, levels, form)
    default = "{quantity}" if "quantity" in levels else None if form == "plain" else PATH
    quantity = Template(table.text("quantity", default))
    table.names("quantity", quantity, levels | {"path"})
    return Rule(title, topics, form, device, device_from, quantity, **optional)


def _optional(table: _Table) -> dict[str, Any]:
    """The fields of a rule that stand by themselves."""
    boot, seq = table.one("boot", exact), table.one("seq", exact)
    if boot is not None and seq is None:
        raise table.error("boot", "needs `seq`", table.data["boot"])
    return {
        "select": table.patterns("select"),
        "ignore": table.patterns("ignore"),
        "strip": [table.made("strip", one, exact) for one in table.texts("strip")],
        "values": _values(table),
        "words": _words(table),
        "text_numbers": table.flag("text_numbers"),
        "time": _time(table),
        "boot": boot,
        "seq": seq,
        "arrays": _arrays(table),
        "when": _when(table),
        "csv": _csv(table),
        "decode": _decode(table),
        "each": table.one("each", Parts),
    }


def _csv(table: _Table) -> Csv:
    delimiter = table.text("delimiter", ",")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise table.error("delimiter", "must be one character", delimiter)
    return Csv(table.texts("columns") if "columns" in table.data else None, delimiter)


def _decode(table: _Table) -> list[Field]:
    found = []
    for path, given in table.table("decode", {}).items():
        inner = table.inner(f"decode.{path!r}", given, ("as", "format", "layout"))
        form = inner.one_of("as", [*BYTES])
        layout = inner.one("layout", Layout)
        read = INNER[inner.one_of("format", [*INNER])] if layout is None else layout.read
        found.append(Field(table.made("decode", path, PathPattern), form, read))
    return found


def _arrays(table: _Table) -> list[tuple[PathPattern, Path]]:
    found = []
    for path, key in table.table("arrays", {}).items():
        if not isinstance(key, str):
            raise table.error(f"arrays.{path!r}", "must be the path of a name", key)
        pattern = table.made(f"arrays.{path!r}", path, PathPattern)
        found.append((pattern, table.made(f"arrays.{path!r}", key, exact)))
    return found


def _when(table: _Table) -> list[tuple[Path, list[Any]]]:
    found = []
    for path, given in table.table("when", {}).items():
        allowed = given if isinstance(given, list) else [given]
        for one in allowed:
            if not isinstance(one, (str, bool, int, float)):
                raise table.error(
                    f"when.{path!r}", "must be a text, a number, true, false, or an array", one
                )
        found.append((table.made(f"when.{path!r}", path, exact), allowed))
    return found


def _merge(table: _Table, defaults: _Table, allowed: Sequence[str]) -> None:
    """Add the defaults: tables and lists come after those of the rule."""
    for key, value in defaults.data.items():
        other = {"device": "device_from", "device_from": "device"}.get(key)
        if key not in allowed or other in table.data:
            continue
        if key in _MERGED_TABLES:
            own = table.table(key, {})
            more = {name: one for name, one in value.items() if name not in own}
            table.data[key] = {**own, **more}
        elif key in _MERGED_LISTS:
            table.data[key] = [*table.texts(key), *defaults.texts(key)]
        else:
            table.data.setdefault(key, value)


def _topics(table: _Table, base: str) -> list[TopicPattern]:
    texts = table.texts("topic")
    if not texts:
        raise table.error("topic", "must be a topic pattern or an array of them", None)
    front = f"{base}/" if base else ""
    try:
        return [TopicPattern(front + one) for one in texts]
    except ValueError as error:
        raise table.error("topic", str(error), table.data["topic"]) from None


def _device(table: _Table, levels: set[str], form: str) -> tuple[Template | None, Path | None]:
    device_from = table.one("device_from", exact)
    if device_from is not None:
        if "device" in table.data:
            raise table.error("device_from", "and `device` exclude each other", "both")
        return None, device_from
    default = "{device}" if "device" in levels else None
    if default is None and "device" not in table.data:
        more = " or `device_from`" if "device_from" in KEYS[form] else ""
        raise table.error(
            "device", f"is needed{more}, as not every topic has a level {{device}}", None
        )
    device = Template(table.text("device", default))
    table.names("device", device, levels)
    return device, None


def _values(table: _Table) -> list[tuple[PathPattern, Quantity]]:
    found = []
    for path, value in table.table("values", {}).items():
        pattern = table.made("values", path, PathPattern)
        given = {"unit": value} if isinstance(value, str) else value
        keys = ("unit", "name", "scale", "offset", "none")
        inner = table.inner(f"values.{path!r}", given, keys, "must be a unit or a table")
        scale, offset = inner.number("scale", 1.0), inner.number("offset", 0.0)
        if scale == 0:
            raise inner.error("scale", "must not be 0", given["scale"])
        name = inner.text("name", "") or None
        none = given.get("none", [])
        none = [
            inner.made("none", one, number) for one in (none if isinstance(none, list) else [none])
        ]
        found.append((pattern, Quantity(inner.text("unit", ""), name, scale, offset, none)))
    return found


def _words(table: _Table) -> dict[str, bool | float | str]:
    words = dict(WORDS)
    for word, meaning in table.table("words", {}).items():
        if not isinstance(meaning, (bool, int, float, str)):
            raise table.error(f"words.{word}", "must be true, false, a number or a text", meaning)
        words[word.lower()] = meaning
    return words


def _time(table: _Table) -> TimeField | None:
    given = table.table("time", {})
    if not given:
        return None
    inner = table.inner("time", given, ("path", "as", "zone"))
    path = inner.one("path", exact)
    if path is None:
        raise inner.error("path", "is needed", None)
    forms = inner.texts("as")
    if not forms or set(forms) - set(FORMS) or len(set(forms) & set(SCALES)) > 1:
        raise inner.error(
            "as", "must be iso, s, ms or us, or an array of iso and one of the others",
            given.get("as"),
        )  # fmt: skip
    zone = inner.text("zone", "") or None
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            rule = "must be a time zone of IANA, such as Europe/Berlin"
            raise inner.error("zone", rule, zone) from None
    return TimeField(path, tuple(forms), zone)


def number(value: object) -> float:
    """A number, or a text with a fraction such as 5/9. Raises ValueError."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        found = float(Fraction(value) if isinstance(value, str) else value)
    except (ValueError, ZeroDivisionError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError('must be a number, or a fraction such as "5/9"')
    return found


class _Table:
    """A table of a file, whose values are checked as they are read."""

    def __init__(self, where: str, data: dict[str, Any]) -> None:
        self.where = where
        self.data = data

    def error(self, key: str, rule: str, value: object) -> MappingError:
        said = "" if value is None else f", not {ascii(value)[:80]}"
        return MappingError(f"{self.where}: {key}: {rule}{said}")

    def known(self, keys: Iterable[str]) -> None:
        """Check the keys; raise MappingError for one that is none of these."""
        for key in self.data:
            if key not in keys:
                raise self.error(key, f"unknown key; there are {', '.join(sorted(keys))}", None)

    def get(self, key: str, default: Any, kind: type, rule: str) -> Any:
        value = self.data.get(key, default)
        if value is not None and not isinstance(value, kind):
            raise self.error(key, rule, value)
        return value

    def text(self, key: str, default: str | None) -> str:
        value = self.get(key, default, str, "must be a text")
        if value is None:
            raise self.error(key, "is needed", None)
        return str(value)

    def texts(self, key: str) -> list[str]:
        """A text or an array of texts."""
        value = self.data.get(key, [])
        values = value if isinstance(value, list) else [value]
        for one in values:
            if not isinstance(one, str):
                raise self.error(key, "must be a text or an array of texts", one)
        return values

    def table(self, key: str, default: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.get(key, default, dict, "must be a table")
        return found

    def flag(self, key: str) -> bool:
        return bool(self.get(key, False, bool, "must be true or false"))

    def one_of(self, key: str, values: Sequence[str]) -> str:
        value = self.data.get(key)
        if value not in values:
            rule = f"must be one of {', '.join(values)}"
            raise self.error(key, rule, value)
        return str(value)

    def inner(
        self, key: str, value: Any, keys: Sequence[str], rule: str = "must be a table"
    ) -> _Table:
        """A table in this one."""
        if not isinstance(value, dict):
            raise self.error(key, rule, value)
        table = _Table(f"{self.where}: {key}", value)
        table.known(keys)
        return table

    def number(self, key: str, default: float) -> float:
        return float(self.made(key, self.data.get(key, default), number))

    def one(self, key: str, make: Callable[[str], Any]) -> Any:
        """Make something of a text; None if the key is not given."""
        return None if key not in self.data else self.made(key, self.text(key, None), make)

    def patterns(self, key: str) -> list[PathPattern]:
        return [self.made(key, one, PathPattern) for one in self.texts(key)]

    def made(self, key: str, text: Any, make: Callable[[Any], Any]) -> Any:
        try:
            return make(text)
        except ValueError as error:
            raise self.error(key, str(error), text) from None

    def names(self, key: str, template: Template, known: set[str]) -> None:
        """Check a template; raise MappingError for a name that is none of these."""
        for name in template.names:
            if name not in known:
                rule = f"no topic of the rule has a level {{{name}}}, and `each` no such key"
                raise self.error(key, rule, template.text)
        if set(template.filled(dict.fromkeys(known, ""))) & set("{}"):
            raise self.error(key, "{ and } are for names of levels", template.text)
