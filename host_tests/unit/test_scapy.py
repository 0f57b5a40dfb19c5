"""The packets of flatmq against scapy's dissector, both ways.

Where scapy (2.6 and later) is not right by itself:
- the lists of SUBSCRIBE, SUBACK and UNSUBSCRIBE do not end with the packet, so that packets are
  given to it one by one;
- it knows no fixed flags, so that PUBREL is built with its bits 3-0 named (QOS=1, section 3.6.1);
- it dissects no will, user or password where their flag is missing, but builds CONNECT at
  level 5 where the level is not named.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import peer
from flatmq.setup import connect
from unit.fake_link import Bench, Clock, fake_clock

logging.getLogger("scapy").setLevel(logging.ERROR)  # it reports what it misses in the network

from scapy.contrib import mqtt  # noqa: E402

TOPIC = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=("Cs",)), min_size=1, max_size=20
).map(str.encode)
TEXT = st.text("abc é", min_size=1, max_size=12).map(str.encode)
DATA = st.binary(min_size=1, max_size=150)
PID = st.integers(1, 65535)


def dissect(packet: bytes | peer.Packet) -> mqtt.MQTT:
    """One packet as scapy sees it, of which nothing is left over."""
    data = packet if isinstance(packet, bytes) else peer.packet(*packet)
    found = mqtt.MQTT(data)
    assert bytes(found) == data, "scapy builds it again as something else"
    return found


# What we build


@given(
    version=st.sampled_from([3, 4]),
    clean=st.booleans(),
    keepalive=st.integers(0, 65535),
    user=st.none() | TEXT,
    password=st.none() | DATA,
    will=st.none() | st.tuples(TOPIC, DATA, st.integers(0, 2), st.booleans()),
)
def test_connect(version, clean, keepalive, user, password, will) -> None:
    if user is None:
        password = None
    found = dissect(bytes(connect(version, b"me-1", clean, keepalive, user, password, will)))
    assert (found.type, found.DUP, found.QOS, found.RETAIN) == (1, 0, 0, 0)
    body = found[mqtt.MQTTConnect]
    assert body.protoname == (b"MQTT" if version == 4 else b"MQIsdp")
    assert (body.protolevel, body.klive, body.cleansess) == (version, keepalive, clean)
    assert (body.clientId, body.reserved) == (b"me-1", 0)
    assert (body.usernameflag, body.passwordflag) == (user is not None, password is not None)
    assert (body.username, body.password) == (user, password)
    topic, payload, qos, retain = will or (None, None, 0, False)
    assert (body.willflag, body.willQOSflag, body.willretainflag) == (bool(will), qos, retain)
    assert (body.willtopic, body.willmsg) == (topic, payload)


@given(TOPIC, st.binary(max_size=150), st.integers(0, 2), st.booleans())
@example(b"a/b", b"", 2, True)
def test_publish_and_publish_again(topic, payload, qos, retain) -> None:
    with fake_clock() as clock:
        bench = Bench(clock, clean_session=False).online()
        pid = bench.client.publish(topic, payload, qos, retain)
        bench.client.poll()
        sent = [(0, bench.sent())]
        if qos:  # once more, to a broker that remembers
            bench.outage()
            bench.online(present=True)
            sent.append((1, bench.sent()))
    for dup, packets in sent:
        (found,) = map(dissect, packets)
        assert (found.type, found.DUP, found.QOS, found.RETAIN) == (3, dup, qos, retain)
        body = found[mqtt.MQTTPublish]
        assert (body.topic, body.value, body.msgid) == (topic, payload, pid or None)


@given(st.lists(TOPIC, min_size=1, max_size=4), st.integers(0, 2))
def test_subscribe_and_unsubscribe(filters: list[bytes], qos: int) -> None:
    with fake_clock() as clock:
        bench = Bench(clock).online()
        bench.client.subscribe(filters, print, qos)
        bench.client.poll()
        (subscribe,) = bench.sent()
        bench.client.unsubscribe(filters)
        bench.client.poll()
        (unsubscribe,) = bench.sent()
    found = dissect(subscribe)
    assert (found.type, found.DUP, found.QOS, found.RETAIN) == (8, 0, 1, 0)
    body = found[mqtt.MQTTSubscribe]
    assert [(t.topic, t.QOS) for t in body.topics] == [(f, qos) for f in filters]
    assert body.msgid > 0
    found = dissect(unsubscribe)
    assert (found.type, found.DUP, found.QOS, found.RETAIN) == (10, 0, 1, 0)
    again = found[mqtt.MQTTUnsubscribe]
    assert [t.topic for t in again.topics] == filters
    assert again.msgid not in (0, body.msgid)


# What scapy builds


@given(TOPIC, st.binary(max_size=300), st.integers(0, 2), st.booleans(), st.booleans(), PID)
def test_a_publish_of_scapy_arrives(topic, payload, qos, retain, dup, pid) -> None:
    got = []
    with fake_clock() as clock:
        bench = Bench(clock).online()
        for topic_filter in (b"#", b"$SYS/#"):
            bench.client.subscribe(
                topic_filter, lambda m: got.append((m.topic, m.payload, m.qos, m.retain, m.dup))
            )
        bench.client.poll()
        bench.sent()
        dup = bool(dup and qos)
        if topic.startswith(b"$"):  # which no wildcard reaches
            topic = b"$SYS/" + topic
        built = mqtt.MQTT(type=3, DUP=dup, QOS=qos, RETAIN=retain) / mqtt.MQTTPublish(
            topic=topic, msgid=pid, value=payload
        )
        bench.feed(bytes(built))
        answers = bench.sent()
        assert bench.client.error is None
    assert got == [(topic, payload, qos, retain, dup)]
    wanted = {0: [], 1: [(0x40, pid)], 2: [(0x50, pid)]}[qos]
    assert [(p.first, p.pid) for p in answers] == wanted


@pytest.mark.parametrize("present", [False, True])
@pytest.mark.parametrize("code", range(6))
def test_a_connack_of_scapy_is_understood(code: int, present: bool, clock: Clock) -> None:
    bench = Bench(clock, clean_session=False)
    bench.greet()
    present = present and not code
    built = mqtt.MQTT(type=2) / mqtt.MQTTConnack(sessPresentFlag=present, retcode=code)
    bench.feed(bytes(built))
    if code:
        assert (bench.client.error.kind, bench.client.error.code) == ("refused", code)
    else:
        assert (bench.client.state, bench.client.session_present) == ("online", present)


@pytest.mark.parametrize("codes", [[0], [1, 2], [0x80], [2, 0x80, 0]])
def test_answers_of_scapy_are_understood(codes: list, clock: Clock) -> None:
    bench = Bench(clock).online()
    client = bench.client
    filters = [b"f%d" % i for i in range(len(codes))]

    def sent() -> int:
        client.poll()
        return bench.sent()[-1].pid

    subscription = client.subscribe(filters, print, 2)
    bench.feed(bytes(mqtt.MQTT(type=9) / mqtt.MQTTSuback(msgid=sent(), retcodes=codes)))
    assert subscription.granted == bytes(codes)
    gone = client.unsubscribe(filters)
    bench.feed(bytes(mqtt.MQTT(type=11) / mqtt.MQTTUnsuback(msgid=sent())))
    assert gone.granted == b""
    one, two = client.publish(b"t", b"1", 1), client.publish(b"t", b"2", 2)
    client.poll()
    for built in (
        mqtt.MQTT(type=4) / mqtt.MQTTPuback(msgid=one),
        mqtt.MQTT(type=5) / mqtt.MQTTPubrec(msgid=two),
        mqtt.MQTT(type=7) / mqtt.MQTTPubcomp(msgid=two),
        mqtt.MQTT(type=13),
    ):
        bench.feed(bytes(built))
    assert bench.sent()[-1] == (0x62, two.to_bytes(2, "big"))
    assert (client.pending, client.stats.strays, client.error) == (0, 0, None)
    bench.feed(bytes(mqtt.MQTT(type=6, QOS=1) / mqtt.MQTTPubrel(msgid=7)))
    assert bench.sent() == [(0x70, b"\0\7")]
    bench.feed(bytes(mqtt.MQTT(type=6) / mqtt.MQTTPubrel(msgid=7)))  # its flags are not named
    assert bench.client.error.kind == "protocol"
