"""Receiving: topic names as they are, and what a broker passes on that breaks a rule."""

from __future__ import annotations

from typing import Any

import pytest

from flatmq.engine import HOLD
from packets import build
from packets.properties import Id
from unit.fake_link import Clock
from v5.clients5 import Bench5, Inbox


def test_a_byte_order_mark_is_part_of_a_topic_name(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    marked, plain = Inbox(), Inbox()
    bench.client.subscribe(b"\xef\xbb\xbft", marked)
    bench.client.subscribe(b"t", plain)
    bench.feed(build.publish(b"\xef\xbb\xbft", b"x"))
    assert (marked.payloads, plain.payloads) == ([b"x"], [])


FAULTY = [
    (Id.PAYLOAD_FORMAT, 2),
    (Id.PAYLOAD_FORMAT, 255),
    (Id.RESPONSE_TOPIC, b""),
    (Id.RESPONSE_TOPIC, b"#"),
    (Id.RESPONSE_TOPIC, b"a/+"),
]


@pytest.mark.parametrize("size", [1, 500])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("fault", FAULTY)
def test_what_a_broker_passes_on_is_left_out_and_counted(
    clock: Clock, fault: tuple[int, Any], qos: int, size: int
) -> None:
    """mosquitto does not look at the payload format and the response topic of a message."""
    bench = Bench5(clock, rx_size=200).accepted()
    seen = []

    def handler(m: Any) -> Any:
        p = m.properties
        found = p.find(fault[0]), p.get(fault[0]), p.user(b"k"), p.is_value(fault[0], b"")
        seen.append((m.payload, found))
        return HOLD if len(seen) == 1 else None  # it is handed over once more, and counted once

    bench.client.subscribe(b"t", handler, chunks=size > 200)
    more = [(Id.USER_PROPERTY, (b"k", b"v")), fault]
    for pid in (7, 8):
        bench.feed(build.publish(b"t", bytes(size), qos, pid, more))
    left_out = (False, None, b"v", False)
    assert {found for _payload, found in seen} == {left_out}
    assert sum(len(payload) for payload, _found in seen[1:]) == 2 * size
    assert (bench.client.stats.strays, bench.client.stats.received) == (2, 2)
    right = (Id.PAYLOAD_FORMAT, 1) if fault[0] == 1 else (Id.RESPONSE_TOPIC, b"a")
    bench.feed(build.publish(b"t", bytes(size), qos, 9, [right]))
    assert seen[-1][1][0] and bench.client.stats.strays == 2
    assert bench.client.connected


def test_a_message_that_nobody_takes_is_not_counted_as_delivered(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    bench.feed(build.publish(b"t", b"x", 1, 7, [(Id.PAYLOAD_FORMAT, 2)]))
    assert (bench.client.stats.unrouted, bench.client.stats.strays) == (1, 0)
    assert bench.names() == ["PUBACK"]
