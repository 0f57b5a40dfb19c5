"""A run of the pipeline in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pyspark.sql import SparkSession

from flatmq_tools.broker import Broker
from flatmq_tools.pipeline.run import Plan, Run
from pipeline.mqtt import until


@contextlib.contextmanager
def started(
    spark: SparkSession, plan: Plan, there: Broker | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Run]:  # fmt: skip
    """A run, which is stopped at the end; it has subscribed if it is of a broker."""
    if there is not None:
        plan.source = {"brokerUrl": there.address, "topic": "dev/#", **plan.source}
        plan.trigger = 0.3
    running = Run(spark, plan, say)
    try:
        subscribed = plan.out / "log" / "subscribed.json"
        until(lambda: there is None or running.look() or subscribed.exists())
        yield running
    finally:
        running.stop()
