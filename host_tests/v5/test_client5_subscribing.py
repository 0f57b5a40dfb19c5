"""Subscribing: options, identifiers, reason codes, and what the broker does not have."""

import asyncio
from typing import Any

import pytest

from brokers.fake import FakeBroker
from flatmq import MQTTError, aio
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, Reports, again, arrived, online, until


def _granted(client: Any, *requests: Any) -> list[bytes]:
    until(lambda: all(r.granted is not None for r in requests), client)
    return [r.granted for r in requests]


def test_a_task_that_waits_for_messages_hears_which_reason_code(broker: FakeBroker) -> None:
    broker.answer_with("SUBACK", 0xC0, times=1)

    async def take() -> None:
        client = aio.Client(b"c", broker.host, broker.port, version=5)
        running = asyncio.create_task(client.run())
        try:
            async for _message in client.subscribe(b"t"):
                pass
        finally:
            running.cancel()

    with pytest.raises(MQTTError, match="SUBACK: reason code 0xc0 for") as raised:
        asyncio.run(asyncio.wait_for(take(), SECONDS))
    assert (raised.value.kind, raised.value.code) == ("refused", 0xC0)


BAD = [
    (b"$share/g", {}, r"must be \$share/GROUP/FILTER"),
    (b"$share//t", {}, r"must be \$share/GROUP/FILTER"),
    (b"$share/+/t", {}, r"must be \$share/GROUP/FILTER"),
    (b"$share/#", {}, r"must be \$share/GROUP/FILTER"),
    (b"$share/g/", {}, r"must be \$share/GROUP/FILTER"),
    (b"$share/g+/t", {}, "topic filter"),
    (b"$share/g/t", {"no_local": True}, r"no_local must be False with \$share"),
    (b"t", {"retain_handling": 3}, "retain_handling must be 0 to 2, not 3"),
]


@pytest.mark.parametrize(("filters", "options", "text"), BAD)
def test_what_breaks_a_rule(clock: Clock, filters: Any, options: dict, text: str) -> None:
    bench = Bench5(clock).accepted()
    with pytest.raises(ValueError, match=text):
        bench.client.subscribe(filters, print, **options)
    bench.drain()
    assert bench.names() == []


@pytest.mark.parametrize("code", [0x80, 0x83, 0x87, 0x8F, 0x91])
def test_unsuback_that_refuses(broker: FakeBroker, code: int) -> None:
    broker.answer_with("UNSUBACK", code, [(Id.REASON_STRING, b"no")], times=1)
    client = online(broker)
    _granted(client, client.subscribe([b"a", b"b", b"c"], print))
    assert _granted(client, client.unsubscribe([b"a", b"b"])) == [bytes([code, code])]
    assert _granted(client, client.unsubscribe([b"c", b"never"])) == [b"\0\x11"]
    assert client.stats.losses == 0


def test_requests_larger_than_the_broker_takes(broker: FakeBroker) -> None:
    broker.announces = properties([(Id.MAXIMUM_PACKET_SIZE, 60)])
    client = online(broker)
    filters = [b"%d/and/so/on" % i for i in range(8)]
    for request in (lambda: client.subscribe(filters, print), lambda: client.unsubscribe(filters)):
        with pytest.raises(ValueError, match="packet must be at most 60 bytes for this broker"):
            request()
    _granted(client, client.subscribe(filters[:3], print))


def test_a_granted_subscription_that_has_become_too_large_waits_for_a_larger_limit(
    broker: FakeBroker,
) -> None:
    reports = Reports()
    client = online(broker, clean_session=False, on_dropped=reports)
    large = client.subscribe([b"a/topic/filter", b"another/topic/filter"], print)
    small = client.subscribe(b"t", print)
    assert _granted(client, large, small) == [b"\0\0", b"\0"]
    broker.announces = properties([(Id.MAXIMUM_PACKET_SIZE, 30)])
    again(broker, client)  # the broker has the session: nothing has to be sent
    arrived(broker, client)
    assert (large.granted, reports.topics) == (b"\0\0", [])
    broker.forget(b"c")
    again(broker, client)
    arrived(broker, client)
    assert list(broker.subscriptions(b"c")) == [b"t"]
    assert large.granted == b"\x95\x95"
    assert reports.topics == [b"a/topic/filter", b"another/topic/filter"]
    broker.forget(b"c")
    again(broker, client)
    arrived(broker, client)
    assert len(reports.seen) == 2  # it is reported once
    assert large.granted == b"\x95\x95"
    # It is tried again, and the broker takes it some day.
    broker.announces = properties([])
    again(broker, client)
    until(lambda: large.granted == b"\0\0", client)
    assert len(broker.subscriptions(b"c")) == 3


def test_a_request_that_was_withdrawn_is_not_counted_as_dropped(clock: Clock) -> None:
    reports = Reports()
    bench = Bench5(clock, clean_session=False, on_dropped=reports).accepted()
    bench.client.subscribe(b"withdrawn", print)
    bench.drain()
    bench.client.unsubscribe(b"withdrawn")
    bench.outage()
    bench.accepted((Id.MAXIMUM_PACKET_SIZE, 4), present=True)
    assert reports.topics == [b"withdrawn"]  # of UNSUBSCRIBE
    assert bench.client.stats.dropped == 1
