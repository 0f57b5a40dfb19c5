"""What tests of the source share: a broker that drops nothing, messages, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from flatmq import Client
from flatmq_tools.broker import Broker, mosquitto

PATIENCE = 120.0  # s


def broker(**more: Any) -> Broker:
    """A mosquitto without its limits: by default it would drop what it cannot send at once."""
    return mosquitto(extra="max_queued_messages 0\nmax_inflight_messages 0", **more)


def publish(
    there: Broker, messages: Iterable[tuple[str, bytes]], qos: int = 1, retain: bool = False
) -> None:
    """Publishes (topic name, payload) pairs, and returns when the broker has them."""
    client = Client(b"publisher", there.host, there.port, tx_size=1 << 17, inflight=100)
    client.connect(10_000)
    for topic, payload in messages:
        while client.publish(topic, payload, qos, retain) is None:
            client.poll(10)
    assert client.wait(30_000)
    client.disconnect()


def until(ready: Callable[[], object], query: Any = None) -> None:
    """Returns when that is so; fails when the query has ended, or after long."""
    end = time.monotonic() + PATIENCE
    while not ready():
        if query is not None and query.exception() is not None:
            raise AssertionError(str(query.exception()))
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
