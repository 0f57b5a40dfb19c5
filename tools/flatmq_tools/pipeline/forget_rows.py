"""The rows of a device that is forgotten, in any table of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from flatmq.topic import matches
from flatmq.wire import is_filter

from .merge import merged_schema, read
from .move_over import has_int96

_COMPRESSION = "zstd"
_READ = 65_536  # rows that are looked at together


def check(device: str, filters: Sequence[str]) -> None:
    """Raise ValueError if this names no device, or if a filter breaks a rule of MQTT."""
    if not device:
        raise ValueError("DEVICE must be a name, not an empty text")
    for one in filters:
        name = one.encode()
        if not is_filter(name, 0, len(name)):
            raise ValueError(f"--topic must be a topic filter, not {one}")


class Rows:
    """The test whether rows and messages are those of a device.

    device   its name, as in the column `device`
    filters  topic filters of its messages; those on dev/DEVICE/... if there are none
    """

    def __init__(self, device: str, filters: Sequence[str] = ()) -> None:
        self.device = device
        self._filters = [one.encode() for one in filters]
        self._prefix = f"dev/{device}/"

    def is_topic(self, topic: str) -> bool:
        """Return whether the messages on a topic are of the device."""
        if not self._filters:
            return topic.startswith(self._prefix)
        name = bytearray(topic.encode())
        return any(topic and matches(one, name, 0, len(name)) for one in self._filters)

    def column(self, names: Iterable[str]) -> str | None:
        """Return the column that says of which device a row is; None if there is none."""
        known = set(names)
        return next((name for name in ("device", "topic") if name in known), None)

    def marked(self, column: str, values: pa.Array) -> pa.Array:
        """Return which rows are of the device, by the values of `column`."""
        if column == "device":
            return pc.fill_null(pc.equal(values, self.device), False)
        known = [topic for topic in pc.unique(values).to_pylist() if topic is not None]
        mine = [topic for topic in known if self.is_topic(topic)]
        return pc.is_in(values, pa.array(mine, values.type))

    def predicate(self, column: str, values: Iterable[str]) -> str | None:
        """Return the rows as a condition of SQL that does not show the name; None for none.

        A log of Delta notes each condition. `values` are those of `column`.
        """
        mine = {one for one in values if one == self.device or column == "topic"}
        if column == "topic":
            mine = {one for one in mine if self.is_topic(one)}
        if not mine:
            return None
        hashes = sorted(hashlib.md5(one.encode(), usedforsecurity=False).hexdigest()
                        for one in mine)  # fmt: skip
        listed = ", ".join(f"'{one}'" for one in hashes)
        return f"md5({column}) IN ({listed})"

    def of_file(self, file: Path) -> NDArray[np.bool_]:
        """Return which rows of a Parquet file are of the device."""
        parquet = pq.ParquetFile(file)
        column = self.column(parquet.schema_arrow.names)
        if column is None:
            return np.zeros(parquet.metadata.num_rows, np.bool_)
        marks = [
            self.marked(column, batch.column(column)).to_numpy(zero_copy_only=False)
            for batch in parquet.iter_batches(_READ, columns=[column])
        ]
        return np.concatenate([np.zeros(0, np.bool_), *marks])


def write_without(file: Path, target: Path, gone: NDArray[np.bool_]) -> None:
    """Write the rows of a Parquet file to another one, in their order, without those marked."""
    schema = merged_schema(iter([file]))
    at = 0
    with pq.ParquetWriter(
        target, schema, compression=_COMPRESSION,
        use_deprecated_int96_timestamps=has_int96(file),
    ) as writer:  # fmt: skip
        for rows in read(file, schema):
            kept = rows.filter(pa.array(~gone[at : at + len(rows)]))
            at += len(rows)
            if len(kept):
                writer.write_table(kept)
