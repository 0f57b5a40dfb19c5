"""The packs in messages: SenML (RFC 8428), or what a mapping says; in Arrow, without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flatmq.rare.wild import matches
from flatmq.wire import is_filter

from ... import senml, senml_cbor
from ..mapping import files
from ..mapping.births import Sessions
from ..mapping.encodings import text as text_of
from ..mapping.encodings import unzipped
from ..mapping.mapping import Mapping
from ..mapping.pack import Pack, Record, bounded, printable
from .columns import MESSAGE, TELEMETRY, fault

# What a message says: a pack for each device in it, or the reason why it is none.
RECORD = pa.struct(
    [
        ("quantity", pa.string()),
        ("unit", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("total", pa.float64()),
    ]
)
PACK = pa.struct(
    [
        ("device", pa.string()),
        ("boot", pa.int64()),
        ("seq", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("told", pa.bool_()),
        ("records", pa.list_(RECORD)),
        ("reason", pa.string()),
    ]
)

# The largest numbers of a boot and a reading: a time in microseconds may name a boot. With larger
# ones the sums of what is lost, over the boots of a device, would be past 63 bits.
_LARGEST = {"boot": (1 << 53) - 1, "seq": (1 << 42) - 1}
IDENTITIES = ("topic", "payload")
"""What names the device of a pack on a topic dev/NAME/...: NAME, or the pack."""

# What `flatmq.senml.Pack` writes of numbers: read here at once. Whatever differs by a character
# is read by `senml`, and says the same; of this, several times as much goes through a second.
_INT = "0|[1-9][0-9]{0,17}"
_HEAD = re.compile(
    r'\[\{"bn":"([A-Za-z0-9][A-Za-z0-9\-:./_]{0,127})/","n":"boot","v":(INT)'
    r'(?:,"bt":([1-9][0-9]{8,10}))?\},\{"n":"seq","v":(INT)\}'.replace("INT", _INT)
)
_VALUE = re.compile(
    r',\{"n":"([A-Za-z0-9\-._][A-Za-z0-9\-:./_]{0,511})"(?:,"u":"([!#-\[\]-~ ]+)")?'
    r',"v":(-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?)'
    r'(?:,"t":(-?(?:0|[1-9][0-9]{0,7})(?:\.[0-9]{1,6})?))?\}'
)
_TAIL = re.compile(r"\][ \t\r\n]*")
_VALUES_OF_KEYS = r" = (?:'.*'|.*?)(?=:)|(?<=device) '.*'(?=: the topic)|(?<=names) '.*"
DIFFERS = rf"^record \d+: |: line.*|{_VALUES_OF_KEYS}"
"""What differs from message to message in a reason: a regular expression."""
_REMEMBERED = 100_000  # topic names
_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError)  # of an array of Arrow
_Row = tuple[bytes, bytes, "int | None", int, "str | None"]
"""Topic name, payload, when it was received, offset; and why it is no pack, if that is known.
The reason is empty if it is not read at all."""


@dataclass(frozen=True)
class Reads:
    """The way in which messages are read.

    identity  "topic": on a topic dev/NAME/... the device is NAME, and a pack that names another
              device gets a reason. "payload": the pack alone names its devices
    filters   of the topic names of messages that are read
    mapping   says instead of `filters` which messages are read, and how
    sessions  have the metrics that messages of Sparkplug B leave out
    """

    identity: str = "topic"
    filters: Sequence[str] = TELEMETRY
    mapping: Mapping | None = None
    sessions: Sessions | None = None

    def __post_init__(self) -> None:
        if self.identity not in IDENTITIES:
            raise ValueError(f"identity must be {' or '.join(IDENTITIES)}, not {self.identity!r}")
        if not self.filters:
            raise ValueError("filters: at least one")
        for one in self.filters:
            if not is_filter(one.encode(), 0, len(one.encode())):
                raise ValueError(f"{one}: no topic filter")


class Reader:
    """Reads messages, a batch of Arrow at a time."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._filters = [one.encode() for one in reads.filters]
        self._known: dict[bytes, tuple[bool, str | None]] = {}

    def packs(self, messages: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Return packs, with the columns of PACK, and the position of the message of each."""
        broken = pa.array([False] * len(messages))
        if "invalid_properties" in messages.schema.names:
            broken = messages["invalid_properties"].is_valid()
        received = messages["timestamp"].cast(pa.int64())
        columns = (messages["topic"], messages["payload"], received, messages["offset"], broken)
        said = self.said(*columns)
        position = np.repeat(np.arange(len(messages)), said.value_lengths().to_numpy())
        return pa.RecordBatch.from_struct_array(said.flatten()), position

    def said(
        self, topics: pa.Array, payloads: pa.Array, received: pa.Array, offsets: pa.Array,
        broken: pa.Array,
    ) -> pa.Array:  # fmt: skip
        """Return what messages say, each as an array of PACK.

        Whatever a message contains, it becomes packs or gets a reason. One that breaks a rule of
        MQTT gets a reason on any topic; another one that is not read says nothing. `received` is
        in microseconds since 1970, and `broken` says which have properties that are not valid.
        """
        # As bytes: Spark hands on a topic name that is not UTF-8, and Arrow would raise.
        names = topics.cast(pa.binary()).to_pylist()
        columns = [each.to_pylist() for each in (payloads, received, offsets, broken)]
        rows: list[_Row] = []
        for name, payload, at, offset, is_broken in zip(names, *columns, strict=True):
            ours, reason = self._known.get(name) or self._look(name or b"")
            if reason is None:
                reason = "properties: not valid" if is_broken else None if ours else ""
            rows.append((name or b"", payload or b"", at, offset, reason))
        try:
            return self._said(rows)
        except _ERRORS:
            # No message is known that does this. Each alone then: only that one is a dead letter.
            return pa.concat_arrays([self._alone(row) for row in rows])

    def _said(self, rows: Sequence[_Row]) -> pa.Array:
        reads = self._reads
        columns = Columns(reads.identity == "topic", reads.mapping, reads.sessions)
        for topic, payload, at, offset, reason in rows:
            if reason is None:
                columns.take(topic, payload, at, offset)
            else:
                columns.reject(reason)
        return columns.array()

    def _alone(self, row: _Row) -> pa.Array:
        """Return what one message says, or that Arrow does not accept it."""
        try:
            return self._said([row])
        except _ERRORS as error:
            return self._said([(*row[:4], _unforeseen(error))])

    def _look(self, topic: bytes) -> tuple[bool, str | None]:
        """Return whether a topic name is read, and the rule that it breaks."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        text = topic.decode(errors="replace")
        if self._reads.mapping is not None:
            ours = bool(self._reads.mapping.names(text))
        else:
            name = bytearray(topic)
            ours = any(topic and matches(one, name, 0, len(name)) for one in self._filters)
        found = ours, fault(text)
        self._known[topic] = found
        return found


def with_messages(packs: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return packs with the columns of the message of each, and its payload if it is no pack."""
    is_dead = packs["reason"].is_valid()
    for name in MESSAGE:
        column = messages[name]
        if name == "payload":
            column = pc.if_else(is_dead, column, None)
        packs = packs.append_column(name, column)
    return packs


def certificates(messages: pa.RecordBatch, mapping: Mapping) -> list[tuple[str, bytes, int, int]]:
    """Return the messages for `Births.add`: the birth certificates that break no rule."""
    if "invalid_properties" in messages.schema.names:
        messages = messages.filter(messages["invalid_properties"].is_null())
    at = messages["timestamp"].cast(pa.int64())
    columns = [messages["topic"], messages["payload"], at, messages["offset"]]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [(row[0], row[1] or b"", *row[2:]) for row in rows if mapping.is_birth(row[0] or "")]


def mapped(
    names: Sequence[str], identity: str = "topic", filters: Sequence[str] = TELEMETRY
) -> Mapping | None:
    """The mapping of mapping files and shipped mappings, in their order; None if there is none.
    What no rule of theirs is for is SenML if its topic name matches `filters`. MappingError."""
    if not names:
        return None
    return files.load(names, filters, partial(_read, identity == "topic"))


def _read(
    bound: bool, topic: str, payload: bytes, received: int | None, device: str | None
) -> list[Pack]:
    """Return the packs of a SenML message. Raises PackError.

    `device` is the one that a rule takes from the topic name, if it does.
    """
    named = device or _named(topic) if bound else None
    return _resolved(topic, payload, received, named)


_TOPIC = re.compile("dev/([^/]+)/")


def _named(topic: str) -> str | None:
    """Return the device that a topic dev/NAME/... names."""
    found = _TOPIC.match(topic)
    return found[1] if found else None


class Columns:
    """The content of messages on its way into an array: packs, and the records of all of them.

    What is added has been checked, so that `array` cannot fail because of one message: texts are
    Unicode, integers have 63 bits, numbers are doubles, times are within the years 1 to 9999.

    bound  True: a topic that names a device names it alone
    mapping
           reads the messages that are not SenML
    sessions
           have the metrics that messages of Sparkplug B leave out
    """

    def __init__(
        self, bound: bool, mapping: Mapping | None = None, sessions: Sessions | None = None
    ) -> None:
        self._bound = bound
        self._sessions = sessions
        self._mapping = mapping
        self.packs: dict[str, list[Any]] = {f.name: [] for f in PACK if f.name != "records"}
        self.records: dict[str, list[Any]] = {f.name: [] for f in RECORD}
        self.messages = [0]  # where the packs of each end,
        self.ends = [0]  # and the records of each pack

    def take(self, topic: bytes, payload: bytes, received: int | None, offset: int = 0) -> None:
        """Add a message that was received at this time, in microseconds since 1970."""
        try:
            text = text_of(topic, "topic: ")
            device = _named(text) if self._bound else None
            if self._mapping is not None:
                self._map(self._mapping, text, payload, (received, offset), device)
            else:
                self._senml(text, payload, received, device)
        except senml.PackError as error:
            reason = printable(str(error))
        except Exception as error:  # of a library, or a fault of ours: it may not stop the table
            reason = _unforeseen(error)
        else:
            self.messages.append(len(self.ends) - 1)
            return
        self._undo()
        self.reject(reason)

    def reject(self, reason: str) -> None:
        """Add a message that is no pack. Without a reason it says nothing."""
        if reason:
            self._pack(reason=reason)
        self.messages.append(len(self.ends) - 1)

    def _undo(self) -> None:
        """Remove what was added since the last whole message."""
        packs = self.messages[-1]
        del self.ends[packs + 1 :]
        for columns, length in ((self.packs, packs), (self.records, self.ends[-1])):
            for column in columns.values():
                del column[length:]

    def _map(
        self, mapping: Mapping, topic: str, payload: bytes, came: tuple[int | None, int],
        device: str | None,
    ) -> None:  # fmt: skip
        """Take what a mapping makes of it: nothing, if it is not for the message."""
        received, offset = came
        rule = mapping.senml(topic)
        if rule is not None:
            named = rule.device or device if self._bound else device
            self._senml(topic, payload, received, named)
            return
        names = None
        if self._sessions is not None and received is not None:
            names = self._sessions.names(topic, (received, offset))
        reading = mapping.reading(topic, payload, received, names)
        if reading.reason is not None:
            self._pack(reason=reading.reason)
        self._add(reading.packs)

    def _taken(self, payload: bytes, received: int | None, named: str | None = None) -> bool:
        """Take it if it is as our boards write it; False, and nothing is taken, if it is not.
        `named` is the device that the topic names."""
        try:
            text = payload.decode("ascii")
        except UnicodeDecodeError:
            return False
        head = _HEAD.match(text)
        if head is None or named not in (None, head[1]):
            return False
        end = head.end()
        found = []
        while value := _VALUE.match(text, end):
            end = value.end()
            if value[1].endswith(("boot", "seq")):  # it may be another device's
                return False
            found.append(value)
        if not _TAIL.fullmatch(text, end):
            return False
        device, boot, base, seq = head.groups()
        if int(boot) > _LARGEST["boot"] or int(seq) > _LARGEST["seq"]:
            return False
        began = int(base or 0)
        times = [began if value[4] is None else began + float(value[4]) for value in found]
        newest = max([began, *times])
        try:
            resolved = [_microseconds(at, received) for at in (newest, *times)]
        except senml.PackError:
            return False
        into = self.records
        into["quantity"] += [value[1] for value in found]
        into["unit"] += [value[2] or "" for value in found]
        into["time"] += resolved[1:]
        into["value"] += [float(value[3]) for value in found]
        for name in ("text", "flag", "total"):
            into[name] += [None] * len(found)
        self._pack(
            device=device, boot=int(boot), seq=int(seq), time=resolved[0],
            told=newest >= senml.RELATIVE,
        )  # fmt: skip
        return True

    def _senml(self, topic: str, payload: bytes, received: int | None, named: str | None) -> None:
        if not self._taken(payload, received, named):
            # All of it before anything is added: one message may not leave a part of itself.
            self._add(_resolved(topic, payload, received, named))

    def _add(self, packs: Sequence[Pack]) -> None:
        for pack in packs:
            for name, values in zip(Record._fields, zip(*pack.records, strict=True), strict=False):
                self.records[name] += values
            self._pack(**{name: getattr(pack, name) for name in self.packs if name != "reason"})

    def _pack(self, **fields: Any) -> None:
        for name, column in self.packs.items():
            column.append(fields.get(name))
        self.ends.append(len(self.records["quantity"]))

    def array(self) -> pa.Array:
        """All that was taken."""
        flat = [pa.array(self.records[field.name], field.type) for field in RECORD]
        records = pa.ListArray.from_arrays(
            pa.array(self.ends, pa.int32()), pa.StructArray.from_arrays(flat, fields=list(RECORD))
        )
        packs = [
            records if f.name == "records" else pa.array(self.packs[f.name], f.type) for f in PACK
        ]
        return pa.ListArray.from_arrays(
            pa.array(self.messages, pa.int32()),
            pa.StructArray.from_arrays(packs, fields=list(PACK)),
        )


def _unforeseen(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")


def _resolved(topic: str, payload: bytes, received: int | None, named: str | None) -> list[Pack]:
    """Return the packs of a message by all the rules of SenML. Raises PackError."""
    payload = unzipped(payload)
    # Relative to 0, so that one that is absolute is known by its size.
    form = senml_cbor if senml_cbor.is_cbor(payload) else senml
    found = form.resolve(payload, 0.0)
    if not found:
        raise senml.PackError("no record has a value")
    known = _numbers(found, named)
    of_topic = _named(topic)
    by_device: dict[str, list[senml.Record]] = {}
    for record in found:
        device = named if named is not None else _device(record, known, of_topic)
        by_device.setdefault(device, []).append(record)
    return [_pack(*one, known, received) for one in by_device.items()]


def _pack(
    device: str, records: list[senml.Record], known: _Numbers, received: int | None
) -> Pack:  # fmt: skip
    newest = max(record.time for record in records)  # before that it was not whole
    numbers = known.get(device, {})
    spent = [record for record, _ in numbers.values()]
    boot, seq = (numbers[name][1] if numbers else None for name in ("boot", "seq"))
    values = [
        _record(record._replace(name=_quantity(record.name, device)), received)
        for record in records
        if not any(record is one for one in spent)
    ]
    at = _microseconds(newest, received)
    return Pack(device, boot, seq, at, newest >= senml.RELATIVE, values)


def _record(record: senml.Record, received: int | None) -> Record:
    at = _microseconds(record.time, received)
    value = record.value
    flag = value if isinstance(value, bool) else None
    text = value if isinstance(value, str) else None
    number = None if value is None or flag is not None or text is not None else float(value)
    total = None if record.total is None else float(record.total)
    return Record(record.name, record.unit, at, number, text, flag, total)


_Numbers = dict[str, dict[str, tuple[senml.Record, int]]]
"""By device, and by "boot" and "seq": the record that has it, and the number."""


def _numbers(records: list[senml.Record], named: str | None) -> _Numbers:
    """Return the devices that have both a boot and a seq in these records.

    With `named`, the device that the topic names, all of them are of that device, and PackError
    if they name another one: in front of "/boot" and "/seq", or as urn:dev (RFC 9039).
    """
    numbers: _Numbers = {}
    for record in records:
        device, _, last = record.name.rpartition("/")
        number = _whole(record.value, _LARGEST[last]) if last in _LARGEST else None
        if number is not None:
            numbers.setdefault(device, {})[last] = record, number
    known = {device: both for device, both in numbers.items() if len(both) == 2}
    if named is not None:
        for device in (*known, *filter(None, map(_urn, records))):
            if device not in ("", named):
                raise senml.PackError(
                    f"device {senml.shown(device)}: the topic names {senml.shown(named)}"
                )
        # A pack may leave the name to the topic.
        own = known.get(named) or known.get("") or {}
        known = {named: own} if own else {}
    return known


def _whole(value: object, largest: int) -> int | None:
    """A boot or a seq: a whole number, however it is written; None if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        return None
    return int(value) if 0 <= value <= largest else None


def _quantity(name: str, device: str) -> str:
    """A record's name without the device's."""
    rest = name[len(device) :] if name.startswith(device) else name
    if device and rest[:1] not in ("", "/", ":"):  # "alarm" is not a quantity of "a"
        rest = name
    return rest.lstrip("/:") or name


def _urn(record: senml.Record) -> str | None:
    """The device of a name that begins with it by RFC 9039."""
    name = record.name
    return ":".join(name.split(":")[:4]) if name.startswith("urn:dev:") else None


def _device(record: senml.Record, known: _Numbers, of_topic: str | None) -> str:
    """Return the device of a record, if the topic name does not bind it.

    It is what stands before "/boot" and "/seq" (docs/telemetry.md). In packs without these it is
    the name in the topic dev/NAME/... if the record's name begins with it, else the urn:dev of the
    name, what is before the first "/" of another, or the name in the topic.
    """
    name = record.name
    end = name.rfind("/") if known else -1
    while end > 0:  # the longest that is known
        if name[:end] in known:
            return name[:end]
        end = name.rfind("/", 0, end)
    if "" in known:
        return ""
    if of_topic and name.startswith(of_topic + "/"):
        return of_topic
    urn = _urn(record)
    if urn is not None:
        return urn
    before, slash, _ = name.partition("/")
    return before if slash else of_topic or ""


def _microseconds(at: float, received: int | None) -> int | None:
    """A time that was resolved relative to 0, in microseconds since 1970. PackError."""
    if at < senml.RELATIVE:
        if received is None:
            return None
        at += received / 1e6
    return bounded("time", at * 1e6)
