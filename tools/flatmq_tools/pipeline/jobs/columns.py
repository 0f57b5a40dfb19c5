"""The columns of a message, and what is wrong with a topic name."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame

MESSAGE = {
    "topic": "string",
    "payload": "binary",
    "timestamp": "timestamp",  # when it was received
    "qos": "int",
    "retain": "boolean",
    "dup": "boolean",
    "offset": "bigint",  # in its log, from 0
}
INVALID = {"invalid_properties": "binary"}  # as they came, if they break a rule
TELEMETRY = ("dev/+/telemetry",)


class ColumnsError(ValueError):
    """It is no table of messages; the text names the column."""


def messages(frame: DataFrame) -> DataFrame:
    """Return the columns of a message, and the invalid properties if the frame has them.

    They are in their order and have their types; others are left out. Raises ColumnsError for one
    that is missing or has another type.
    """
    there = dict(frame.dtypes)
    for name, kind in MESSAGE.items():
        if name not in there:
            raise ColumnsError(
                f"no column {name}: messages have {', '.join(MESSAGE)}; "
                f"this has {', '.join(there) or 'none'}"
            )
        if there[name] != kind:
            raise ColumnsError(f"column {name} is {there[name]}: a message's is {kind}")
    return frame.select(*MESSAGE, *(name for name in INVALID if name in there))


def fault(topic: str) -> str | None:
    """Return the rule of MQTT that a topic name breaks; None if it is valid.

    `log_rows` says how topic names are written that are not valid.
    """
    if not topic:
        return "topic name: empty"
    if "#00" in topic:
        return "topic name: U+0000 is not allowed"
    if re.search("#[89A-F]", topic):
        return "topic name: not UTF-8"
    if "#" in topic or "+" in topic:
        return "topic name: wildcards are not allowed"
    return None
