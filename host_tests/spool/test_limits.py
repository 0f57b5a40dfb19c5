"""Records larger than an MQTT 5 broker's announced limits, and others it rules out.

They are set aside, and the others go on.
"""

from pathlib import Path

import pytest

from brokers.fake import FakeBroker
from flatmq import Client
from flatmq.spool import Spool
from observer import until
from packets.properties import Id, properties


@pytest.mark.parametrize(("limit", "payload", "qos", "retain"), [
    ((Id.MAXIMUM_PACKET_SIZE, 60), bytes(100), 1, False),
    ((Id.RETAIN_AVAILABLE, 0), b"x", 1, True),
], ids=["Maximum Packet Size", "Retain Available"])  # fmt: skip
@pytest.mark.parametrize("online", [True, False])
def test_what_the_broker_does_not_take_is_set_aside(
    tmp_path: Path, limit: tuple[int, int], payload: bytes, qos: int, retain: bool, online: bool
) -> None:
    reports: list[tuple[int, bytes, str]] = []
    with FakeBroker() as broker:
        broker.announces = properties([limit])
        client = Client(
            b"c",
            broker.host,
            broker.port,
            version=5,
            clean_session=False,
            on_dropped=lambda *about: reports.append(about),
        )
        spool = Spool(client, str(tmp_path / "s"), segment=512)
        client.start()
        if online:
            until("the broker", lambda: client.connected, lambda: spool.poll(2))
        assert spool.publish(b"t", b"before", 1)
        assert spool.publish(b"not", payload, qos, retain)
        assert spool.publish(b"t", b"after", 2)
        until("the end", lambda: not spool.pending, lambda: spool.poll(2))
        assert [packet.payload for packet in broker.onward] == [b"before", b"after"]
        client.disconnect()
        assert broker.complaints == []
    assert [topic for _id, topic, _reason in reports] == [b"not"]
    assert list(spool.dropped()) == [(0x30 | qos << 1 | retain, b"not", payload)]
    assert (spool.stats.set_aside, spool.stats.acknowledged, spool.stats.dropped) == (1, 2, 0)
    assert client.stats.dropped == 1


def test_a_broker_without_qos_1_gets_no_records(tmp_path: Path) -> None:
    """They would be lost without a word at QoS 0."""
    with FakeBroker() as broker:
        broker.announces = properties([(Id.MAXIMUM_QOS, 0)])
        client = Client(b"c", broker.host, broker.port, version=5, clean_session=False)
        spool = Spool(client, str(tmp_path / "s"), segment=512)
        client.start()
        until("the broker", lambda: client.connected, lambda: spool.poll(2))
        for qos in (1, 2):
            assert spool.publish(b"t", b"x", qos)
        until("the end", lambda: not spool.pending, lambda: spool.poll(2))
        client.disconnect()
        assert (broker.onward, broker.complaints) == ([], [])
    assert (spool.stats.set_aside, spool.stats.acknowledged) == (2, 0)
    assert len(list(spool.dropped())) == 2
