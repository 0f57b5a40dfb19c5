"""What did the boards measure? SenML packs (RFC 8428) as rows, one a value; what is none, with
the reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf

from ... import senml, senml_cbor
from .columns import MESSAGE, TELEMETRY, matched, messages

# What a message says: a pack for each device in it, or the reason why it is none.
_RECORD = pa.struct(
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
_PACK = pa.struct(
    [
        ("device", pa.string()),
        ("boot", pa.int64()),
        ("seq", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("told", pa.bool_()),
        ("records", pa.list_(_RECORD)),
        ("reason", pa.string()),
    ]
)
_PARSED = """array<struct<
    device: string, boot: bigint, seq: bigint, time: timestamp, told: boolean,
    records: array<struct<quantity: string, unit: string, time: timestamp, value: double,
        text: string, flag: boolean, total: double>>,
    reason: string>>"""

# What a timestamp of Python and of SQL holds: the years 1 to 9999, in seconds since 1970.
_FIRST, _END = -62_135_596_800, 253_402_300_800
_MAX = (1 << 63) - 1
_WITHIN = "10 minutes"

# What `flatmq.senml.Pack` writes of numbers: read here at once. Whatever differs by a character
# is read by `senml`, and says the same; of this, several times as much goes through a second.
_INT = "0|[1-9][0-9]{0,17}"
_HEAD = re.compile(
    r'\[\{"bn":"([A-Za-z0-9][A-Za-z0-9\-:./_]*)/","n":"boot","v":(INT)'
    r'(?:,"bt":([1-9][0-9]{8,10}))?\},\{"n":"seq","v":(INT)\}'.replace("INT", _INT)
)
_VALUE = re.compile(
    r',\{"n":"([A-Za-z0-9\-._][A-Za-z0-9\-:./_]*)"(?:,"u":"([!#-\[\]-~ ]+)")?'
    r',"v":(-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?)'
    r'(?:,"t":(-?(?:0|[1-9][0-9]{0,7})(?:\.[0-9]{1,6})?))?\}'
)
_TAIL = re.compile(r"\][ \t\r\n]*")


def measurements(
    frame: DataFrame, filters: Sequence[str] = TELEMETRY, within: str = _WITHIN
) -> DataFrame:
    """One row a value of messages, of a batch or a stream; no reading twice (see `once`).

    Columns: device, boot, seq (null where the pack has none), quantity (the record's name
    without the device), unit, time (resolved; that of arrival where the pack has none), value,
    text (of vs, and of vd in base64url), flag, total (the sum field), topic, received.
    """
    return values(once(packs(frame, filters), within))


def dead_letters(frame: DataFrame, filters: Sequence[str] = TELEMETRY) -> DataFrame:
    """The messages that are no SenML pack, whole, and a column `reason`."""
    return dead(packs(frame, filters))


def packs(frame: DataFrame, filters: Sequence[str] = TELEMETRY) -> DataFrame:
    """The messages whose topic name matches one of `filters`, parsed once for `values` and
    `dead`: keep it with `persist` when both are wanted of a batch.

    A row for each device of a message (a board's pack has one). `identity` names the reading, by
    device, boot and seq, and is the message's own where they are missing. `told` is whether the
    pack had a time of its own. Where `reason` is not null the message is no pack; only there is
    `payload` kept.
    """
    # Of three columns alone: the others need not go through Python.
    # Its kind is known by the types of its arguments; PySpark's own types do not know that.
    parse = arrow_udf(_said, _PARSED)  # type: ignore[call-overload]
    said = F.explode(parse("topic", "payload", F.unix_micros("timestamp")))
    rows = messages(frame).where(matched(F.col("topic"), filters)).withColumn("said", said)
    reading = F.concat_ws("/", "said.boot", "said.seq", "said.device")
    arrival = F.concat_ws("/", F.unix_micros("timestamp"), "offset", "topic")
    message = F.concat_ws("#", arrival, "said.device")
    return rows.select(
        "said.*",
        F.when(F.col("said.boot").isNotNull(), reading).otherwise(message).alias("identity"),
        *(name for name in MESSAGE if name != "payload"),
        F.when(F.col("said.reason").isNotNull(), F.col("payload")).alias("payload"),
    )


def once(packs: DataFrame, within: str = _WITHIN) -> DataFrame:
    """No reading twice: packs by (device, boot, seq), the first that came. Packs without these
    all stay, and so do those that are none.

    Of a stream, a copy is known for `within` after the first one came: the state holds the
    identities of that time, about 100 B each. By the time of arrival: so no pack is late, however
    long a board kept it. What comes from a log or a file that lies `within` behind the newest is
    late, and not in: Spark counts it as dropped by the watermark.
    """
    if packs.isStreaming:
        marked = packs.withWatermark("timestamp", within)
        return marked.dropDuplicatesWithinWatermark(["identity"])
    first = F.min_by(F.struct(*packs.columns), F.struct("timestamp", "offset")).alias("first")
    return packs.groupBy("identity").agg(first).select("first.*")


def values(packs: DataFrame, marked: bool = False) -> DataFrame:
    """One row a value, with the columns of `measurements`. `marked` adds the identity of the
    pack and the position in it: `windows` drops copies by them."""
    rows = packs.where("reason is null").select("*", F.posexplode("records"))
    return rows.select(
        "device", "boot", "seq", "col.quantity", "col.unit", "col.time", "col.value", "col.text",
        "col.flag", "col.total", "topic", F.col("timestamp").alias("received"),
        *((["identity", F.col("pos").alias("position")]) if marked else ()),
    )  # fmt: skip


def dead(packs: DataFrame) -> DataFrame:
    """What is no pack: the columns of a message, and `reason`."""
    return packs.where("reason is not null").select(
        "topic", "payload", "timestamp", "qos", "retain", "dup", "offset", "reason"
    )


def counted(dead: DataFrame) -> DataFrame:
    """How many dead letters there are for each `kind` of reason, with the newest of them:
    kind, count, newest. A kind is a reason without what differs from message to message."""
    kind = F.regexp_replace(F.col("reason"), r"^record \d+: | = .*?(?=:)|: line.*", "")
    return (
        dead.groupBy(kind.alias("kind"))
        .agg(F.count("*").alias("count"), F.max("timestamp").alias("newest"))
        .orderBy(F.desc("count"), "kind")
    )


def _said(topics: pa.Array, payloads: pa.Array, received: pa.Array) -> pa.Array:
    """What messages say, each as an array of _PACK; `received` in microseconds since 1970."""
    columns = _Columns()
    triples = zip(topics.to_pylist(), payloads.to_pylist(), received.to_pylist(), strict=True)
    for topic, payload, at in triples:
        columns.take(topic, payload or b"", at)
    return columns.array()


class _Columns:
    """What is said, on its way into an array: the packs, and the records of all of them."""

    def __init__(self) -> None:
        self.packs: dict[str, list[Any]] = {f.name: [] for f in _PACK if f.name != "records"}
        self.records: dict[str, list[Any]] = {f.name: [] for f in _RECORD}
        self.messages = [0]  # where the packs of each end,
        self.ends = [0]  # and the records of each pack

    def take(self, topic: str, payload: bytes, received: int | None) -> None:
        """Takes a message that was received at so many microseconds since 1970."""
        if not self._taken(payload, received):
            self._resolve(topic, payload, received)
        self.messages.append(len(self.ends) - 1)

    def _taken(self, payload: bytes, received: int | None) -> bool:
        """Takes it if it is as our boards write it; False, and nothing is taken, if it is not."""
        try:
            text = payload.decode("ascii")
        except UnicodeDecodeError:
            return False
        head = _HEAD.match(text)
        if head is None:
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

    def _resolve(self, topic: str, payload: bytes, received: int | None) -> None:
        try:
            # Relative to 0, so that one that is absolute is known by its size.
            form = senml_cbor if senml_cbor.is_cbor(payload) else senml
            packs = _by_device(form.resolve(payload, 0.0), topic)
            for pack in packs:
                pack.check(received)
            for pack in packs:
                for record in pack.records:
                    self._record(record, _microseconds(record.time, received))
                self._pack(
                    device=pack.device, boot=pack.boot, seq=pack.seq,
                    time=_microseconds(pack.time, received), told=pack.time >= senml.RELATIVE,
                )  # fmt: skip
        except senml.PackError as error:
            self._pack(reason=str(error))

    def _record(self, record: senml.Record, at: int | None) -> None:
        value = record.value
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        into = self.records
        into["quantity"].append(record.name)
        into["unit"].append(record.unit)
        into["time"].append(at)
        into["value"].append(float(value) if number else None)  # type: ignore[arg-type]
        into["text"].append(value if isinstance(value, str) else None)
        into["flag"].append(value if isinstance(value, bool) else None)
        into["total"].append(None if record.total is None else float(record.total))

    def _pack(self, **fields: Any) -> None:
        for name, column in self.packs.items():
            column.append(fields.get(name))
        self.ends.append(len(self.records["quantity"]))

    def array(self) -> pa.Array:
        """All that was taken."""
        flat = [pa.array(self.records[field.name], field.type) for field in _RECORD]
        records = pa.ListArray.from_arrays(
            pa.array(self.ends, pa.int32()), pa.StructArray.from_arrays(flat, fields=list(_RECORD))
        )
        packs = [
            records if f.name == "records" else pa.array(self.packs[f.name], f.type) for f in _PACK
        ]
        return pa.ListArray.from_arrays(
            pa.array(self.messages, pa.int32()),
            pa.StructArray.from_arrays(packs, fields=list(_PACK)),
        )


class _Pack:
    """What a message says of one device."""

    def __init__(self, device: str, time: float) -> None:
        self.device = device
        self.boot: int | None = None
        self.seq: int | None = None
        self.time = time
        """Of the newest of its records: before that it was not whole."""
        self.records: list[senml.Record] = []

    def check(self, received: int | None) -> None:
        """PackError for a time that no timestamp holds: before anything of it is taken."""
        for at in (self.time, *(record.time for record in self.records)):
            _microseconds(at, received)


def _by_device(records: list[senml.Record], topic: str) -> list[_Pack]:
    """The records of each device, by their names without it.

    A device is what stands before "/boot" and "/seq" (docs/telemetry.md). Of packs without these
    it is the name in the topic dev/NAME/..., where the names of the records begin with it, else
    the urn:dev of a name (RFC 9039), what is before the first "/" of another, or the name in the
    topic.
    """
    numbers: dict[str, dict[str, senml.Record]] = {}
    for record in records:
        device, _, last = record.name.rpartition("/")
        if last in ("boot", "seq") and type(record.value) is int and 0 <= record.value <= _MAX:
            numbers.setdefault(device, {})[last] = record
    known = {device: both for device, both in numbers.items() if len(both) == 2}
    packs: dict[str, _Pack] = {}
    for record in records:
        device = _device(record.name, known, topic)
        if device not in packs:
            packs[device] = pack = _Pack(device, record.time)
            if device in known:
                boot, seq = known[device]["boot"], known[device]["seq"]
                pack.boot, pack.seq = boot.value, seq.value  # type: ignore[assignment]
        packs[device].time = max(packs[device].time, record.time)
        own = known.get(device, {})
        if record is own.get("boot") or record is own.get("seq"):
            continue
        rest = record.name[len(device) :] if record.name.startswith(device) else record.name
        packs[device].records.append(record._replace(name=rest.lstrip("/:") or record.name))
    return list(packs.values())


_TOPIC = re.compile("dev/([^/]+)/")


def _device(name: str, known: dict[str, dict[str, senml.Record]], topic: str) -> str:
    for device in sorted(known, key=len, reverse=True):
        if name.startswith(device + "/") or not device:
            return device
    told = _TOPIC.match(topic)
    if told and name.startswith(told[1] + "/"):
        return told[1]
    if name.startswith("urn:dev:"):
        return ":".join(name.split(":")[:4])
    before, slash, _ = name.partition("/")
    return before if slash else told[1] if told else ""


def _microseconds(at: float, received: int | None) -> int | None:
    """A time that was resolved relative to 0, in microseconds since 1970. PackError."""
    if at < senml.RELATIVE:
        if received is None:
            return None
        at += received / 1e6
    if not _FIRST <= at < _END:
        raise senml.PackError("time: not within the years 1 to 9999")
    return round(at * 1e6)
