"""The table of all messages: each that was received, once, with nothing left out."""

from __future__ import annotations

from pyspark.sql import DataFrame

from .columns import whole


def raw(frame: DataFrame) -> DataFrame:
    """Return every message as it was received, of a batch or a stream.

    What the broker delivered twice is there twice, with an offset each: `health` counts it.
    Raises ColumnsError.
    """
    return whole(frame)
