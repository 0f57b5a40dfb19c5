"""The health tables find what a fleet did: loss, copies, boots, silence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flatmq_tools.fleet import Settings, compare, plan, truth
from flatmq_tools.fleet.fleet import Fleet
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE = 20.0  # seconds
TROUBLES = plan.Troubles(
    lost=0.05, duplicated=0.05, reordered=0.03, drop_outs=4, reboots=5, silent=0.25, clocks=0.2
)
SILENT_AFTER = 1.0  # s


def test_the_health_tables_say_what_the_fleet_did(
    shared_brokers: Any, tmp_path: Path, spark: SparkSession
) -> None:
    from flatmq_tools.pipeline.jobs.health import Health

    target = shared_brokers.get("mosquitto", "shared")
    prefix = "health"
    with log.Writer(tmp_path) as writer:
        ingest = Ingest(writer, (target.host, target.port), ["dev/#"], clean_session=True)
        ingest.start(10_000)
        retained = time.time()
        ingest.background()
        fleet = Fleet(target.host, target.port, Settings(40, 10, 4, 3, prefix, troubles=TROUBLES))
        fleet.run()
        boots = fleet.boots
        assert fleet.complete
        sent = sum(boot.published + len(boot.duplicated) for boot in boots)
        told = sum(boot.connects + boot.wills + (boot.end == truth.END) for boot in boots)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end and writer.synced < sent + told:
            time.sleep(0.02)
        ingest.check()
        ingest.stop()
        assert writer.next_offset >= sent + told
        arrived = pa.Table.from_batches(log.read(tmp_path, *log.bounds(tmp_path)))
    total = truth.summary(boots)
    for name in ("lost", "duplicated", "reordered", "drop_outs", "reboots", "dead", "stuck"):
        assert getattr(total, name) > 0, (name, total)
    # Nothing but what was done on purpose: so all of it is known exactly.
    assert not any(boot.again or boot.unacknowledged or boot.no_room for boot in boots)
    packs = arrived.filter(pc.ends_with(arrived["topic"], "/telemetry"))
    last = packs.group_by("topic").aggregate([("timestamp", "max")]).to_pylist()
    heard = {row["topic"].split("/")[1]: row["timestamp_max"] for row in last}
    now = max(heard[boot.device] for boot in boots)

    mine = spark.createDataFrame(arrived).where(f"topic like 'dev/{prefix}-%'")
    health = Health(mine.where(f"timestamp >= timestamp_micros({int(retained * 1e6)})"),
                    now=now, silent_after=SILENT_AFTER)  # fmt: skip
    found = health.boots().collect()
    seen = {
        (row.device, row.boot): compare.Seen(
            row.received, row.duplicates, row.lost + row.unheard, row.reordered
        )
        for row in found
    }
    assert compare.differences(boots, seen) == []

    by_device: dict[str, list[truth.Boot]] = {}
    for boot in boots:
        by_device.setdefault(boot.device, []).append(boot)
    devices = {row.device: row for row in health.devices().collect()}
    assert devices.keys() == by_device.keys()
    for device, its in by_device.items():
        row = devices[device]
        last = its[-1]
        assert row.reboots == len(its) - 1, device
        assert row.status == last.status, device
        # Nobody is silent who says that he sleeps; one who stopped at the very end is not yet.
        silence = (now - heard[device]).total_seconds()
        assert row.silent_s == silence, device
        assert row.silent == (last.end != truth.END and silence > SILENT_AFTER), device
        # By so much a pack seems to be late, whose board's clock is behind.
        assert row.delay_p50 == pytest.approx(-last.clock * 1000, abs=5000), device
