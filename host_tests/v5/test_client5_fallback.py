"""version=None: MQTT 5 first, and 3.1.1 with a broker that does not speak it."""

import errno
import io
from collections.abc import Callable
from typing import Any

import pytest

import peer
from brokers.core import CLOSES_ON_LEVEL_5, REFUSES_LEVEL_5, UNSUPPORTED_VERSION
from brokers.fake import FakeBroker
from conftest import library, printed
from flatmq import Client, MQTTError
from flatmq.properties import Properties
from packets import build
from packets.properties import Id
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, Inbox, again, made, online, settled, until

OLD = [REFUSES_LEVEL_5, CLOSES_ON_LEVEL_5, UNSUPPORTED_VERSION]
# Whatever a CONNACK of two bytes says, it is none of MQTT 5.
OTHERS = [b"\x20\2\0" + bytes((code,)) for code in (0, 2, 3, 4, 5)]


def _until_online(client: Any) -> Any:
    client.start()
    until(lambda: client.connected, client)
    return client


def test_where_mqtt_5_works_it_stays(broker: FakeBroker) -> None:
    client = online(broker, version=None)
    for _ in range(3):
        again(broker, client)
    broker.level_5 = REFUSES_LEVEL_5  # too late: this broker has spoken it
    losses = client.stats.losses
    broker.end()
    until(lambda: client.stats.losses > losses + 3, client)
    broker.level_5 = None
    until(lambda: client.connected, client)
    assert client.level == 5
    assert set(broker.levels) == {5}


@pytest.mark.parametrize("answer", OLD + OTHERS, ids=bytes.hex)
def test_a_broker_that_speaks_3_1_1_alone(broker: FakeBroker, answer: bytes) -> None:
    broker.level_5 = answer
    client = online(broker, version=None)  # connect() goes on where the client does
    assert (client.level, client.error) == (4, None)
    client.publish(b"t", b"x", 2)
    settled(client)
    again(broker, client)
    tries = 2 if answer == CLOSES_ON_LEVEL_5 else 1
    assert broker.levels == [5] * tries + [4, 4]


def test_version_5_does_not_fall_back(broker: FakeBroker) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    client = made(broker)
    client.start()
    until(lambda: client.stats.losses == 4, client)
    assert (client.error.kind, client.error.code) == ("refused", 1)
    assert client.error.detail == "CONNACK of MQTT 3.1.1: return code 1"
    assert set(broker.levels) == {5}


@pytest.mark.parametrize("code", [0x80, 0x86, 0x87, 0x88, 0x89])
def test_another_refusal_is_none_of_the_version(broker: FakeBroker, code: int) -> None:
    broker.answer_with("CONNACK", code, times=3)
    client = made(broker, version=None)
    with pytest.raises(MQTTError) as raised:
        client.connect(int(SECONDS * 1000))
    assert (raised.value.kind, raised.value.code) == ("refused", code)
    _until_online(client)
    assert client.level == 5
    assert broker.levels == [5, 5, 5, 5]


def test_one_connection_that_ends_is_not_enough(clock: Clock) -> None:
    bench = Bench5(clock, version=None, retry_max_ms=500)
    for _ in range(5):
        bench.greet()
        bench.lose()
        bench.link.fails = "connect"  # what comes between has them begin again
        bench.pass_time(3000)
        bench.link.fails = ""
    assert bench.client.level == 5
    bench.greet()
    bench.lose()
    bench.greet()
    bench.lose()
    assert bench.client.level == 4


def _ctrl_c(bench: Bench5) -> None:
    bench.stream.raises["read"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.client.poll()


def _tls_handshake(bench: Bench5) -> None:
    bench.link.why = lambda error: MQTTError("tls", "the certificate is not valid yet")
    bench.stream.raises["read"] = OSError(errno.EIO, "handshake")
    bench.drain()
    assert bench.client.error.kind == "tls"


def _no_memory(bench: Bench5) -> None:
    bench.stream.raises["read"] = MemoryError("memory allocation failed")
    bench.drain()
    assert bench.client.error.kind == "resource"


def _silence(bench: Bench5) -> None:
    bench.pass_time(3000)


@pytest.mark.parametrize("end", [_ctrl_c, _tls_handshake, _no_memory, _silence])
def test_what_is_no_answer_of_the_broker(end: Callable[[Bench5], None], clock: Clock) -> None:
    bench = Bench5(clock, version=None, timeout=2)
    for _ in range(4):
        bench.greet()
        end(bench)
    assert bench.client.level == 5


MORE = Properties(content_type="x", user=[("a", "b")])


def _answer(data: bytes) -> Callable[[Bench5], None]:
    return lambda bench: bench.feed(data)


NOT_3_1_1 = [
    Bench5.lose,
    _silence,
    *map(_answer, (REFUSES_LEVEL_5, UNSUPPORTED_VERSION, build.connack())),
]


@pytest.mark.parametrize("end", NOT_3_1_1, ids=["close", "silence", "1", "0x84", "CONNACK of 5"])
@pytest.mark.parametrize("before", [Bench5.lose, _answer(OTHERS[2])], ids=["close", "unavailable"])
def test_a_broker_that_speaks_mqtt_5_alone_and_was_away(
    before: Callable[[Bench5], None], end: Callable[[Bench5], None], clock: Clock
) -> None:
    """Something in front of it answered meanwhile. Nothing that was accepted loses anything."""
    bench = Bench5(clock, version=None, timeout=2, retry_max_ms=500)
    client = bench.client
    client.set_will(b"w", b"gone", 1, True, Properties(will_delay=5))
    client.publish(b"t", b"x", 1, properties=MORE)
    client.subscribe(b"t", print, 1, no_local=True)
    assert client.request(b"ask", b"", print)
    hello = bench.greet()
    before(bench)
    levels = [5]
    for _ in range(12):
        levels.append(bench.greet().body[6])
        (end if levels[-1] == 4 else before)(bench)
    assert set(levels[-4:]) == {4, 5}
    while bench.greet() != hello:
        end(bench)
    bench.feed(build.connack())
    assert bench.client.connected
    sent = bench.packets()
    assert sent[0].filters[0].no_local
    by_name = {p.payload: p.properties for p in sent if p.name == "PUBLISH"}
    assert by_name[b"x"].first(Id.CONTENT_TYPE) == b"x"
    assert by_name[b""].first(Id.CORRELATION_DATA)


@pytest.mark.parametrize("accepts", [4, 5])
def test_a_will_that_is_set_while_3_1_1_is_tried(accepts: int, clock: Clock) -> None:
    bench = Bench5(clock, version=None, retry_max_ms=500)
    bench.greet()
    bench.feed(REFUSES_LEVEL_5)
    bench.greet()
    bench.client.set_will(b"w", b"gone", 1, True, Properties(will_delay=5))
    if accepts == 4:
        bench.feed(peer.connack())
        bench.lose()
        assert b"\0\1w\0\4gone" in bench.greet().body
        return
    bench.feed(REFUSES_LEVEL_5)
    body = bench.greet().body
    assert body[6] == 5
    assert b"\5\x18\0\0\0\5\0\1w\0\4gone" in body


@pytest.mark.parametrize("closes", [4, 6])
def test_the_two_versions_are_tried_in_turn(closes: int, clock: Clock) -> None:
    """Until the broker accepts one, whatever closed the connections before."""
    bench = Bench5(clock, version=None, retry_max_ms=500)
    levels = []
    for _ in range(closes):
        levels.append(bench.greet().body[6])
        bench.lose()
    assert levels == [5, 5, 4, 4, 5, 5][:closes]
    if closes == 4:
        bench.accepted()
    else:
        bench.online()
    assert bench.client.connected
    assert bench.client.level == (5 if closes == 4 else 4)


@pytest.mark.parametrize("answer", OLD, ids=["00 01", "end of file", "0x84"])
def test_what_was_queued_goes_without_properties(broker: FakeBroker, answer: bytes) -> None:
    broker.level_5 = answer
    client = made(broker, version=None, clean_session=False)
    got: dict[bytes, list] = {}
    client.subscribe(b"+", lambda m: got.setdefault(m.topic, []).append((m.payload, m.qos)), qos=2)
    for i in range(5):
        assert client.publish(b"%d" % (i % 3), b"%d" % i, i % 3, properties=MORE) is not None
    _until_online(client)
    settled(client)
    until(lambda: sum(map(len, got.values())) == 5, client)
    wanted = {b"0": [(b"0", 0), (b"3", 0)], b"1": [(b"1", 1), (b"4", 1)], b"2": [(b"2", 2)]}
    assert got == wanted
    client.publish(b"1", b"5", 1, properties=MORE)
    settled(client)
    until(lambda: got[b"1"][-1] == (b"5", 1), client)


@pytest.mark.parametrize("fill", range(0, 60, 7))
def test_a_ring_that_has_wrapped(broker: FakeBroker, fill: int) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    client = made(broker, version=None, tx_size=160, inflight=20)
    client.publish(b"fill", bytes(fill), 1)
    pids = [client.publish(b"old", bytes(12), 1) for _ in range(3)]
    for pid in pids:
        client.drop(pid)
    wanted = [bytes(fill)]
    while client.publish(b"t", b"%d" % len(wanted), 1, properties=MORE) is not None:
        wanted.append(b"%d" % len(wanted))
    _until_online(client)
    settled(client)
    assert [p.payload for p in broker.onward] == wanted
    client.publish(b"t", b"after", 1)
    settled(client)
    assert broker.onward[-1].payload == b"after"


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_in_pieces_that_waits(broker: FakeBroker, qos: int) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    data = bytes(range(100)) * 50
    client = made(broker, version=None)
    client.publish_from(b"large", io.BytesIO(data), qos, properties=MORE)
    client.publish(b"t", b"after", 1, properties=MORE)
    _until_online(client)
    settled(client)
    assert [p.payload for p in broker.onward] == [data, b"after"]
    client.publish_from(b"large", data, qos, properties=MORE)
    client.publish(b"t", b"again", 1)
    settled(client)
    assert [p.payload for p in broker.onward][2:] == [data, b"again"]


@pytest.mark.parametrize("user", [b"u", None])
def test_the_will_and_the_credentials(broker: FakeBroker, user: bytes | None) -> None:
    """3.1.1 has no password without a user."""
    broker.level_5 = REFUSES_LEVEL_5
    client = made(broker, version=None, user=user, password=lambda: b"p")
    client.set_will(b"w", b"gone", 1, True, Properties(will_delay=5, expiry=9))
    _until_online(client)
    hello = broker.received[-1].connect
    assert hello is not None
    assert (hello.username, hello.password) == (user or b"", b"p")
    assert hello.will is not None
    assert hello.will[:4] == (b"w", b"gone", 1, 1)
    client.set_will(b"w", b"changed")
    again(broker, client)
    hello = [p for p in broker.received if p.name == "CONNECT"][-1].connect
    assert hello is not None
    assert hello.will is not None
    assert hello.will.payload == b"changed"


PROGRAM = """
from flatmq import Client
c = Client(b"c", {host!r}, {port}, version=None, user=b"u", password=b"p", auth={auth}, retry_ms=9)
for _ in range(2):
    c.start()
    while not c.connected: c.poll(20)
    print(c.level)
    c.disconnect()
"""


@pytest.mark.parametrize("auth", [None, "('M', lambda data: b'a')"])
def test_a_board_that_falls_back_keeps_its_password(auth: str | None, broker: FakeBroker) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    program = PROGRAM.format(host=broker.host, port=broker.port, auth=auth)
    said = printed("micropython", "192k", "-c", program, folders=[library("micropython")])
    assert said.split()[-2:] == ["4", "4"]
    hellos = [p.connect for p in broker.received if p.connect]
    assert [(hello.username, hello.password) for hello in hellos] == [(b"u", b"p")] * 2


@pytest.mark.parametrize("before", [True, False])
def test_a_handler_may_look_for_properties(broker: FakeBroker, before: bool) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    client = made(broker, version=None, rx_size=64)
    seen: list = []

    def handler(message: Any) -> None:
        more = message.properties
        seen.append((more.get(Id.CONTENT_TYPE), more.user(b"a"), more.is_value(3, b"")))

    if before:
        client.subscribe(b"t", handler, 1, chunks=True)
    _until_online(client)
    if not before:
        client.subscribe(b"t", handler, 1, chunks=True)
    until(lambda: broker.subscriptions(b"c"), client)
    client.publish(b"t", b"x", 1, properties=MORE)
    client.publish(b"t", bytes(100), 0)
    until(lambda: len(seen) >= 2, client)
    assert set(seen) == {(None, None, False)}


def test_options_of_mqtt_5_are_left_out(broker: FakeBroker) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    client = made(
        broker, version=None, user_properties={"a": "b"}, session_expiry=5, maximum_packet_size=500
    )
    inbox = Inbox()
    client.subscribe(b"t", inbox, 1, no_local=True, retain_as_published=True, retain_handling=2)
    _until_online(client)
    subscription = client.subscribe(b"u", inbox, 1, no_local=True)
    until(lambda: subscription.granted is not None, client)
    assert [f.options for f, _ in broker.subscriptions(b"c").values()] == [1, 1]
    client.alias(b"t").publish(b"x")
    until(lambda: inbox.payloads == [b"x"], client)
    assert client.disconnect(with_will=True, session_expiry=3)


def test_requests_are_given_up(broker: FakeBroker) -> None:
    broker.level_5 = REFUSES_LEVEL_5
    answers: list = []

    def handler(message: Any) -> None:
        answers.append(message)
        raise RuntimeError

    client = made(broker, version=None)
    for _ in range(2):
        assert client.request(b"ask", b"x", handler, 60)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            _until_online(client)
    _until_online(client)
    assert answers == [None, None]
    with pytest.raises(ValueError, match="request needs MQTT 5"):
        client.request(b"ask", b"x", answers.append)


def test_an_identifier_that_only_mqtt_5_allows() -> None:
    with pytest.raises(ValueError, match="client_id length must be 1 to 65535, not 0"):
        Client(b"", "broker", version=None, clean_session=False)


def test_qos_2_past_pubrec_from_before_a_reboot(clock: Clock) -> None:
    """A spool gives such a message back to the client."""
    bench = Bench5(clock, version=None, clean_session=False)
    client = bench.client
    out = client.handover()
    released, sent = 40_000, 40_001
    assert out.put(released, 0x3E, b"t", b"released")
    assert out.put(sent, 0x3C, b"t", b"sent")
    bench.greet()
    bench.feed(REFUSES_LEVEL_5)
    assert client.level == 4
    bench.greet()
    bench.feed(peer.connack(present=True))
    bench.drain()
    rel, again = bench.sent()
    assert (rel.first, rel.pid) == (0x62, released)
    assert peer.take_apart(again) == peer.Publish(True, 2, False, b"t", sent, b"sent")
    bench.feed(peer.pubcomp(released), peer.pubrec(sent), peer.pubcomp(sent))
    assert client.pending == 0


def test_a_connack_of_two_bytes_that_accepts(clock: Clock) -> None:
    """No broker may do that: without properties it is not one of MQTT 5."""
    bench = Bench5(clock)
    bench.greet()
    bench.feed(b"\x20\2\0\0")
    assert bench.farewell()[0] == 0x81
    bench.greet()
    bench.feed(build.connack())
    assert bench.client.connected
