"""Helpers for tests of source and ingest: a broker, its certificate, messages, and waiting."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flatmq import Client
from flatmq_rigs.certificates import Issued
from flatmq_rigs.pipeline.bench.messages import MOSQUITTO
from flatmq_tools.broker import Broker, mosquitto
from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.log import Writer

PATIENCE = 120.0  # s


def broker(extra: str = "", **more: Any) -> Broker:
    """A mosquitto without its limits: by default it would drop what it cannot send at once."""
    return mosquitto(extra=f"{MOSQUITTO}\n{extra}", **more)


def publish(
    there: Broker, messages: Iterable[tuple[str, bytes]], qos: int = 1, retain: bool = False,
    properties: Any = None, **login: Any,
) -> None:  # fmt: skip
    """Publish (topic name, payload) pairs at a broker; properties need `version=5`."""
    more = {} if properties is None else {"properties": properties}
    client = Client(b"publisher", there.host, there.port, tx_size=1 << 17, inflight=100, **login)
    client.connect(10_000)
    for topic, payload in messages:
        while client.publish(topic, payload, qos, retain, **more) is None:
            client.poll(10)
    assert client.wait(30_000)
    client.disconnect()


def receiving(there: Any, writer: Writer, *filters: str, **options: Any) -> Ingest:
    """An ingest that the broker has granted these filters, in a thread."""
    made = Ingest(writer, (there.host, there.port), filters, **options)
    made.start()
    made.background()
    until(lambda: made.subscribed or made.check())
    return made


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    made = Issued("test", authority=True, hosts=["127.0.0.1"], path_length=0)
    return made.write(folder, "broker")


def until(ready: Callable[[], object], query: Any = None) -> None:
    """Wait; fail if the query ended, or after long. `ready` may miss files that are removed."""
    end = time.monotonic() + PATIENCE
    while True:
        missing = None
        try:
            if ready():
                return
        except FileNotFoundError as error:
            missing = error
        if query is not None and query.exception() is not None:
            raise AssertionError(str(query.exception()))
        if time.monotonic() >= end:
            raise AssertionError("it did not happen") from missing
        time.sleep(0.1)  # to look at a run is work for Spark
