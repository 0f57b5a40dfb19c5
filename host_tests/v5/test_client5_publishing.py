"""Publishing: properties, what the broker does not take, and what it refuses."""

from typing import Any

import pytest

from brokers.fake import FakeBroker
from flatmq.properties import Properties
from packets.properties import Id, properties
from v5.clients5 import Reports, arrived, online, serving, settled, until

# Properties


@pytest.mark.parametrize(("given", "error", "text"), [
    ({"expiry": -1}, ValueError, "expiry must be 0 to 4294967295, not -1"),
    ({"expiry": 1 << 32}, ValueError, "expiry must be 0 to"),
    ({"expiry": "1"}, TypeError, "expiry"),
    ({"payload_format": 2}, ValueError, "payload_format must be 0 to 1, not 2"),
    ({"content_type": b"\0"}, ValueError, "content_type"),
    ({"content_type": b"\xff"}, ValueError, "content_type"),
    ({"content_type": "x" * 65536}, ValueError, "content_type"),
    ({"response_topic": "a/+"}, ValueError, "response_topic"),
    ({"response_topic": ""}, ValueError, "response_topic"),
    ({"correlation_data": 5}, TypeError, "correlation_data"),
    ({"user": [("a",)]}, TypeError, "user must be pairs"),
    ({"user": ["ab"]}, TypeError, "user must be pairs"),
    ({"user": 5}, TypeError, "user must be pairs of name and value, not 5"),
    ({"user": [(b"\xff", b"")]}, ValueError, "user property"),
    ({"topic_alias": 1}, TypeError, "topic_alias"),
    ({"session_expiry": 1}, TypeError, "session_expiry"),
])  # fmt: skip
def test_properties_that_break_a_rule(given: dict, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        Properties(**given)


@pytest.mark.parametrize("large", [False, True])
def test_properties_that_a_message_cannot_have(broker: FakeBroker, large: bool) -> None:
    client = online(broker)
    publish = client.publish_from if large else client.publish
    with pytest.raises(ValueError, match="will_delay: only a will has it"):
        publish(b"t", b"x", properties=Properties(will_delay=1))
    with pytest.raises(TypeError, match="properties must be Properties, not b'x'"):
        publish(b"t", b"x", properties=b"x")
    assert publish(b"t", b"x") == 0
    arrived(broker, client)
    assert len(broker.onward) == 1


# What the broker says that it does not take


def test_the_maximum_qos_is_kept() -> None:
    with serving([(Id.MAXIMUM_QOS, 1)]) as broker:
        client = online(broker)
        assert (client.max_qos, client.server.max_qos) == (1, 1)
        with pytest.raises(ValueError, match="qos must be 0 to 1, not 2"):
            client.publish(b"t", b"x", 2)
        assert client.publish(b"t", b"x", 1)
        settled(client)
        subscription = client.subscribe(b"t", print, qos=2)  # it is granted at less
        until(lambda: subscription.granted is not None, client)
        assert subscription.granted == b"\1"
    with serving([(Id.MAXIMUM_QOS, 0)]) as broker:
        client = online(broker)
        for publish in (client.publish, client.publish_from):
            with pytest.raises(ValueError, match="qos"):
                publish(b"t", b"x", 1)
        with pytest.raises(ValueError, match="qos"):
            client.set_will(b"t", b"x", 1)


def test_there_are_no_retained_messages() -> None:
    with serving([(Id.RETAIN_AVAILABLE, 0), (Id.TOPIC_ALIAS_MAXIMUM, 2)]) as broker:
        client = online(broker)
        with pytest.raises(ValueError, match="retain must be False"):
            client.alias(b"a").publish(b"x", retain=True)
        for publish in (client.publish, client.publish_from):
            with pytest.raises(ValueError, match="retain must be False"):
                publish(b"t", b"x", retain=True)
        assert client.publish(b"t", b"x", 1)
        settled(client)


@pytest.mark.parametrize("most", [64, 200, 4000])
def test_no_packet_is_larger_than_the_broker_takes(most: int) -> None:
    with serving([(Id.MAXIMUM_PACKET_SIZE, most)]) as broker:
        client = online(broker, tx_size=1024)
        head = 2 + 1 + 2 + 1 + 2  # of PUBLISH: length and topic name, identifier, properties
        head += most > 129
        for publish in (client.publish, client.publish_from):
            if most < 1024 or publish == client.publish_from:
                with pytest.raises(ValueError, match=f"at most {most} bytes"):
                    publish(b"t", bytes(most - head + 1), 1)
                assert publish(b"t", bytes(most - head), 1)
                settled(client)
                with pytest.raises(ValueError, match=f"at most {most} bytes"):
                    publish(b"t", bytes(most), 0, properties=Properties(expiry=5))
        assert all(len(p.payload) == most - head for p in broker.onward)
        assert broker.onward


def test_what_is_sent_in_pieces_is_measured_as_bytes() -> None:
    with serving([(Id.MAXIMUM_PACKET_SIZE, 64)]) as broker:
        client = online(broker)
        with pytest.raises(ValueError, match="at most 64 bytes"):
            client.publish_from(b"t", "\u20ac" * 21)
        with pytest.raises(TypeError, match="source must be a buffer, str or a file, not int"):
            client.publish_from(b"t", 5)
        assert client.publish_from(b"t", "\u20ac" * 19) == 0
        arrived(broker, client)


LIMITS: list[tuple[tuple[int, int], bytes, dict[str, Any], str]] = [
    ((Id.MAXIMUM_QOS, 1), b"x", {"qos": 2}, "QoS above 1"),
    ((Id.MAXIMUM_PACKET_SIZE, 100), bytes(200), {}, "at most 100 bytes"),
    ((Id.RETAIN_AVAILABLE, 0), b"x", {"retain": True}, "retained"),
    ((Id.MAXIMUM_QOS, 0), b"x", {"qos": 1}, "QoS above 0"),
]


@pytest.mark.parametrize(
    ("limit", "payload", "options", "reason", "large"),
    [(*row, False) for row in LIMITS] + [(*row, True) for row in LIMITS[1:]],
    ids=range(7),
)
def test_what_was_accepted_before_it_was_known_is_reported(
    broker: FakeBroker, limit: tuple, payload: bytes, options: dict, reason: str, large: bool
) -> None:
    """Also where it is sent in pieces."""
    reports = Reports()
    size = 80 if large else 1024
    client = online(broker, clean_session=False, on_dropped=reports, tx_size=size)
    broker.kill()
    until(lambda: not client.connected, client)
    broker.announces = properties([limit])
    publish = client.publish_from if large else client.publish
    publish(b"bad", payload, **options)
    client.publish(b"after", b"y")
    broker.restart()
    until(lambda: client.connected, client)
    arrived(broker, client)
    assert [p.topic for p in broker.onward] == [b"after"]
    assert reports.topics == [b"bad"]
    assert reason in reports.seen[0][2]
    assert client.stats.dropped == 1
