"""The protobuf messages of Sparkplug B, by section 6.4 of its specification (version 3.0).

The fields that carry no plain value (data sets, templates, extensions) are declared as bytes: they
are passed over, and never decoded. Fields that are not here are skipped by protobuf.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
