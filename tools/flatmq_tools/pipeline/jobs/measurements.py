"""SenML packs (RFC 8428) as rows, one per value; messages that are no pack, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType

from ..mapping.births import Births, Sessions
from ..mapping.mapping import Mapping
from .columns import INVALID, MESSAGE, TELEMETRY, messages
from .parsing import PACK, Reader, Reads, certificates, mapped

__all__ = ["dead", "mapped", "measurements", "once", "packs", "values"]
_PACKS = ArrayType(from_arrow_type(PACK))
_WITHIN = "10 minutes"


def measurements(
    frame: DataFrame, filters: Sequence[str] = TELEMETRY, within: str = _WITHIN,
    identity: str = "topic", mapping: Mapping | None = None,
) -> DataFrame:  # fmt: skip
    """One row a value of messages, of a batch or a stream; no reading twice (see `once`).

    Columns: device, boot, seq (null where the pack has none), quantity (the record's name
    without the device), unit, time (resolved; that of arrival where the pack has none), value,
    text (of vs, and of vd in base64url), flag, total (the sum field), topic, received.
    """
    return values(once(packs(frame, filters, identity, mapping), within))


def packs(
    frame: DataFrame, filters: Sequence[str] = TELEMETRY, identity: str = "topic",
    mapping: Mapping | None = None,
) -> DataFrame:  # fmt: skip
    """Parse the messages whose topic name matches one of `filters`.

    The result is for `values` and `dead`; keep it with `persist` if a batch needs both.

    A row for each device of a message (a board's pack has one). `identity` names the reading by
    device, boot and seq; if they are missing, the message itself. `told` is whether the pack had a
    time of its own. If `reason` is not null the message is no pack, and only then is `payload`
    kept. Whatever a message contains, it becomes a pack or gets a reason. A message that breaks a
    rule of MQTT gets one on any topic.

    identity  "topic": on a topic dev/NAME/... the device is NAME, and a pack that names another
              device gets a reason. "payload": the pack alone names its devices
    mapping   says instead of `filters` which messages are read, and how; see `mapped`. The birth
              certificates of Sparkplug B are those in the frame, if it is a batch: in a stream no
              alias is known
    """
    frame = messages(frame)
    reads = Reads(identity, filters, mapping, _sessions(frame, mapping))
    broken = F.lit(False)
    if {*INVALID} <= {*frame.columns}:
        broken = F.col(*INVALID).isNotNull()
    received = F.unix_micros("timestamp")
    # Its kind is known by the types of its arguments; PySpark's own types do not know that.
    parse = arrow_udf(Reader(reads).said, _PACKS)  # type: ignore[call-overload]
    said = F.explode(parse("topic", "payload", received, "offset", broken))
    rows = frame.withColumn("said", said)
    # A topic name that is not UTF-8 would be an error of whoever reads the tables.
    rows = rows.withColumn("topic", F.make_valid_utf8("topic"))
    reading = F.concat_ws("/", "said.boot", "said.seq", "said.device")
    arrival = F.concat_ws("/", received, "offset", "topic")
    message = F.concat_ws("#", arrival, "said.device")
    return rows.select(
        "said.*",
        F.when(F.col("said.boot").isNotNull(), reading).otherwise(message).alias("identity"),
        *(name for name in MESSAGE if name != "payload"),
        F.when(F.col("said.reason").isNotNull(), F.col("payload")).alias("payload"),
    )


def _sessions(frame: DataFrame, mapping: Mapping | None) -> Sessions | None:
    """Return the birth certificates in these messages; None if none is needed."""
    if mapping is None or not mapping.births or frame.isStreaming:
        return None
    births = Births()
    found = frame.where("topic LIKE '%BIRTH/%'").orderBy("timestamp", "offset")
    for batch in found.toArrow().to_batches():
        births.add(certificates(batch, mapping))
    return births.sessions()


def once(packs: DataFrame, within: str = _WITHIN) -> DataFrame:
    """Drop copies of readings: of packs with the same (device, boot, seq), keep the first.

    Packs without these all stay, and so do those that are none.

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


def values(packs: DataFrame) -> DataFrame:
    """Return one row per value, with the columns of `measurements`."""
    rows = packs.where("reason is null").select("*", F.explode("records").alias("col"))
    return rows.select(
        "device", "boot", "seq", "col.quantity", "col.unit", "col.time", "col.value", "col.text",
        "col.flag", "col.total", "topic", F.col("timestamp").alias("received"),
    )  # fmt: skip


def dead(packs: DataFrame) -> DataFrame:
    """Return the messages that are no pack: the columns of a message, and `reason`."""
    return packs.where("reason is not null").select(
        "topic", "payload", "timestamp", "qos", "retain", "dup", "offset", "reason"
    )
