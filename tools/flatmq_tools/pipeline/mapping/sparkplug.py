"""Read a payload of Sparkplug B: a protobuf message with metrics.

Its schema is that of section 6.4 of the specification (version 3.0). The fields that carry no
plain value (data sets, templates, extensions) are declared as bytes: they are passed over, and
never decoded. Fields that are not here are skipped by protobuf.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .encodings import text
from .pack import Pack, PackError, Record, Room, bounded
from .rule import Bound, Place, record

Metric = tuple[str, int | None]
"""The name of a metric and its data type, as a birth certificate says."""
Names = Callable[[int | str], Metric | None]
"""Finds the metric of an alias or a name."""

_INT = {1: 8, 2: 16, 3: 32, 4: 64}  # data type: bits
_UINT = {5: 8, 6: 16, 7: 32, 8: 64}
_FLOATS, _BOOLEAN, _TEXTS, _DATE_TIME = (9, 10), 11, (12, 14, 15), 13
_NOT_VALUES = range(16, 35)  # data sets, bytes, files, templates, property sets, arrays
_OTHER = ("bytes_value", "dataset_value", "template_value", "extension_value")
_WIDTH = {"int_value": 32, "long_value": 64}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def read(
    bound: Bound, payload: bytes, received: int | None, names: Names | None = None
) -> list[Pack]:
    """Return what the metrics of a payload say.

    Raises PackError if there is an alias that `names` does not know.
    """
    if not payload:  # it removes a retained message
        return []
    parsed = _parsed(payload)
    own = parsed.HasField("timestamp")
    sent = _milliseconds(parsed.timestamp) if own else received
    records: list[Record] = []
    room = Room(len(payload))
    for metric in parsed.metrics:
        name, kind = _identity(metric, names)
        own = own or metric.HasField("timestamp")
        at = _milliseconds(metric.timestamp) if metric.HasField("timestamp") else sent
        place = bound.place(tuple(name.split("/")))
        made = None if place is None else _record(place, metric, kind, at, bound)
        if made is not None:
            room.take(made.quantity)
            records.append(made)
    newest = max((r.time for r in records if r.time is not None), default=sent)
    return [Pack(bound.device, None, None, newest, own, records)]


def birth(payload: bytes) -> list[tuple[str, int | None, int | None]]:
    """The metrics of a birth certificate: name, data type, alias. Raises PackError."""
    found = []
    for metric in _parsed(payload).metrics:
        name, kind = _identity(metric, None)
        found.append((name, kind, int(metric.alias) if metric.HasField("alias") else None))
    return found


def _parsed(payload: bytes) -> Any:
    parsed = payload_class()()
    try:
        parsed.ParseFromString(payload)
    except DecodeError as error:
        raise PackError(f"not a payload of Sparkplug B: {error}") from error
    return parsed


def _identity(metric: Any, names: Names | None) -> Metric:
    kind = metric.datatype if metric.HasField("datatype") else None
    if metric.HasField("name"):
        name = text(metric.name, "the name of a metric: ")
        if not name:
            raise PackError("a metric has an empty name")
        if kind is None and names is not None:
            return names(name) or (name, None)
        return name, kind
    if not metric.HasField("alias"):
        raise PackError("a metric has neither name nor alias")
    known = None if names is None else names(metric.alias)
    if known is None:
        raise PackError(f"alias = {metric.alias}: no birth certificate that holds names it")
    name, born = known
    return name, born if kind is None else kind


def _record(
    place: Place, metric: Any, kind: int | None, at: int | None, bound: Bound
) -> Record | None:
    which = metric.WhichOneof("value")
    if metric.is_null or kind in _NOT_VALUES or which in _OTHER:
        return None
    name = place.name
    if which is None:
        raise PackError(f"{name}: a metric without a value")
    raw = getattr(metric, which)
    if which == "string_value":
        raw = text(raw, f"{name}: ")
    return record(place, _value(name, kind or 0, which, raw), at, bound.rule, False)


def _value(name: str, kind: int, which: str, raw: Any) -> Any:
    """A value by its data type; 0 if the type is not known. Raises PackError."""
    if kind in (*_INT, *_UINT, _DATE_TIME, 0) and which in _WIDTH:
        return _whole(name, kind, which, raw)
    fits = (
        kind in (*_FLOATS, 0) and which in ("float_value", "double_value"),
        kind in (_BOOLEAN, 0) and which == "boolean_value",
        kind in (*_TEXTS, 0) and which == "string_value",
    )
    if not any(fits):
        raise PackError(f"{name}: {which} does not fit the data type {kind}")
    return raw


def _whole(name: str, kind: int, which: str, raw: int) -> int | str:
    if kind in _UINT and raw >> _UINT[kind] == 0:
        return raw
    if kind in _INT:
        bits = _INT[kind]
        if raw >> bits == 0:  # in as many bits as its type has
            return raw - (raw >> (bits - 1) << bits)
        if raw >= (1 << _WIDTH[which]) - (1 << (bits - 1)):  # in as many bits as its field has
            return raw - (1 << _WIDTH[which])
    if kind == _DATE_TIME:
        micros = _milliseconds(raw)
        return (_EPOCH + datetime.timedelta(microseconds=micros)).isoformat()
    if kind == 0:
        # The type is not in the message: read a number that is the same in all types.
        if all(raw >> (bits - 1) != 1 for bits in _INT.values()):
            return raw
        raise PackError(f"{name} = {raw}: may be negative, and no data type is known")
    raise PackError(f"{name} = {raw}: does not fit the data type {kind}")


def _milliseconds(value: int) -> int:
    return bounded(f"timestamp = {value}", value * 1000)


# The schema

_FIELD = descriptor_pb2.FieldDescriptorProto
_PAYLOAD = (
    ("timestamp", 1, _FIELD.TYPE_UINT64),
    ("seq", 3, _FIELD.TYPE_UINT64),
    ("uuid", 4, _FIELD.TYPE_BYTES),
    ("body", 5, _FIELD.TYPE_BYTES),
)
_METRIC = (
    ("name", 1, _FIELD.TYPE_BYTES),
    ("alias", 2, _FIELD.TYPE_UINT64),
    ("timestamp", 3, _FIELD.TYPE_UINT64),
    ("datatype", 4, _FIELD.TYPE_UINT32),
    ("is_historical", 5, _FIELD.TYPE_BOOL),
    ("is_transient", 6, _FIELD.TYPE_BOOL),
    ("is_null", 7, _FIELD.TYPE_BOOL),
)
_VALUE = (
    ("int_value", 10, _FIELD.TYPE_UINT32),
    ("long_value", 11, _FIELD.TYPE_UINT64),
    ("float_value", 12, _FIELD.TYPE_FLOAT),
    ("double_value", 13, _FIELD.TYPE_DOUBLE),
    ("boolean_value", 14, _FIELD.TYPE_BOOL),
    ("string_value", 15, _FIELD.TYPE_BYTES),
    ("bytes_value", 16, _FIELD.TYPE_BYTES),
    ("dataset_value", 17, _FIELD.TYPE_BYTES),
    ("template_value", 18, _FIELD.TYPE_BYTES),
    ("extension_value", 19, _FIELD.TYPE_BYTES),
)
_PACKAGE = "flatmq.sparkplug"


@cache
def payload_class() -> Any:
    """The class of a Sparkplug payload; made with the first call."""
    file = descriptor_pb2.FileDescriptorProto(
        name="flatmq_sparkplug.proto", package=_PACKAGE, syntax="proto2"
    )
    payload, metric = file.message_type.add(name="Payload"), file.message_type.add(name="Metric")
    metric.oneof_decl.add(name="value")
    for fields, message in ((_PAYLOAD, payload), (_METRIC, metric), (_VALUE, metric)):
        for name, number, kind in fields:
            made = message.field.add(
                name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL
            )
            if fields is _VALUE:
                made.oneof_index = 0
    payload.field.add(
        name="metrics", number=2, type=_FIELD.TYPE_MESSAGE, label=_FIELD.LABEL_REPEATED,
        type_name=f".{_PACKAGE}.Metric",
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Payload"))
