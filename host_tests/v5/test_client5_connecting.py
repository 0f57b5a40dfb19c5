"""Connecting: what CONNECT says, and that what CONNACK says is kept."""

from typing import Any
from unittest.mock import Mock

import pytest

from brokers.fake import FakeBroker
from conftest import library, printed
from flatmq import Client
from flatmq.properties import Properties
from flatmq.stream_tls import TLS
from packets import build
from packets.properties import Id, properties
from packets.strict import Will
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, again, made, named, online

FOREVER = 0xFFFFFFFF


def _hello(broker: FakeBroker) -> Any:
    return named(broker, "CONNECT")[-1]


# CONNECT


def test_the_least(broker: FakeBroker) -> None:
    online(broker, keepalive=77)
    hello = _hello(broker)
    assert hello.connect.keepalive == 77
    assert hello.connect.clean_start == 1
    assert (hello.connect.username, hello.connect.password, hello.connect.will) == (None,) * 3
    assert sorted(hello.properties) == [
        (Id.REQUEST_PROBLEM_INFORMATION, 0),
        (Id.RECEIVE_MAXIMUM, 32),
    ]


EXPIRIES: list[tuple[dict[str, Any], tuple[int, int | None]]] = [
    ({}, (1, None)),
    ({"clean_session": True, "session_expiry": 60}, (1, 60)),
    ({"clean_session": False}, (0, FOREVER)),
    ({"clean_session": False, "session_expiry": None}, (0, FOREVER)),
    ({"clean_session": False, "session_expiry": 0}, (0, 0)),
    ({"clean_session": False, "session_expiry": 3600}, (0, 3600)),
    ({"clean_session": False, "session_expiry": FOREVER}, (0, FOREVER)),
]


@pytest.mark.parametrize(("options", "sent"), EXPIRIES)
def test_the_session(broker: FakeBroker, options: dict, sent: tuple) -> None:
    client = online(broker, **options)
    again(broker, client)
    for hello in named(broker, "CONNECT"):  # with every one, or the next would end the session
        expiry = hello.properties.first(Id.SESSION_EXPIRY)
        assert (hello.connect.clean_start, expiry) == sent
    assert client.session_present == (sent[0] == 0 and bool(sent[1]))


def test_all_that_may_be_given(broker: FakeBroker) -> None:
    pairs = [("a", "1"), (b"a", b"2")]
    online(
        broker,
        incoming=7,
        maximum_packet_size=70000,
        user_properties=pairs,
        user="u",
        password=b"\0\xff",
    )
    hello = _hello(broker)
    p = hello.properties
    assert (p.first(Id.RECEIVE_MAXIMUM), p.first(Id.MAXIMUM_PACKET_SIZE)) == (7, 70000)
    assert p.each(Id.USER_PROPERTY) == [(b"a", b"1"), (b"a", b"2")]
    assert (hello.connect.username, hello.connect.password) == (b"u", b"\0\xff")


def test_a_password_alone_and_a_user_alone(broker: FakeBroker) -> None:
    online(broker, b"one", password="p")
    assert (_hello(broker).connect.username, _hello(broker).connect.password) == (None, b"p")
    online(broker, b"two", user="u")
    assert (_hello(broker).connect.username, _hello(broker).connect.password) == (b"u", None)


@pytest.mark.parametrize("version", [4, 5, None])
def test_a_client_is_set_up_once(version: int | None) -> None:
    tls = Mock(spec=TLS)
    Client(b"c", "broker", version=version, tls=tls)
    tls.link.assert_called_once_with("broker", 8883)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will(broker: FakeBroker, qos: int, retain: bool) -> None:
    client = made(broker)
    more = Properties(will_delay=5, expiry=60, content_type="x", user={"k": "v"})
    client.set_will(b"w", b"gone", qos, retain, more)
    client.connect(int(SECONDS * 1000))
    will = _hello(broker).connect.will
    wanted = [(Id.CONTENT_TYPE, b"x"), (Id.MESSAGE_EXPIRY, 60), (Id.USER_PROPERTY, (b"k", b"v"))]
    wanted.append((Id.WILL_DELAY, 5))
    assert will == Will(b"w", b"gone", qos, int(retain), will.properties)
    assert sorted(will.properties) == sorted(properties(wanted))


def test_no_will(broker: FakeBroker) -> None:
    client = made(broker)
    client.set_will(b"w", b"gone", 1, True, Properties(will_delay=1))
    client.set_will(None)
    client.connect(int(SECONDS * 1000))
    assert _hello(broker).connect.will is None
    with pytest.raises(TypeError, match="properties must be Properties, not 5"):
        client.set_will(b"w", b"gone", properties=5)
    with pytest.raises(ValueError, match="will topic"):
        client.set_will(b"w/#", b"gone")


WRONG: list[tuple[dict[str, Any], type, str]] = [
    ({"session_expiry": -1}, ValueError, "session_expiry must be 0 to 4294967295, not -1"),
    ({"session_expiry": FOREVER + 1}, ValueError, "session_expiry"),
    ({"session_expiry": "1"}, TypeError, "session_expiry"),
    ({"maximum_packet_size": 0}, ValueError, "maximum_packet_size must be 1 to"),
    ({"user_properties": [1]}, TypeError, "user must be pairs"),
    ({"nonsense": 1}, TypeError, "nonsense"),
    ({"requests": 0}, ValueError, "requests"),
    ({"requests": 256}, ValueError, "requests"),
    ({"response_topic": "a/#"}, ValueError, "response_topic"),
    ({"response_topic": 5}, TypeError, "response_topic"),
    ({"auth": 5}, TypeError, "auth must be a pair of a name and a function"),
    ({"auth": ("m",)}, TypeError, "auth must be a pair of a name and a function"),
    ({"auth": ("m", b"data")}, TypeError, "auth must be a pair of a name and a function"),
    ({"auth": "ab"}, TypeError, "auth must be a pair of a name and a function"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG)
def test_arguments_that_break_a_rule(options: dict, error: type, text: str) -> None:
    options = {"client_id": b"c", "host": "127.0.0.1", "version": 5, **options}
    with pytest.raises(error, match=text):
        Client(**options)


def test_arguments_of_mqtt_5_are_refused_for_3_1_1() -> None:
    for name in ("session_expiry", "user_properties", "auth", "requests"):
        with pytest.raises(TypeError, match=f"Client has no argument '{name}'"):
            Client(b"c", "127.0.0.1", **{name: None})  # type: ignore[arg-type]


# CONNACK

SAYS = [
    (Id.SESSION_EXPIRY, 100),
    (Id.RECEIVE_MAXIMUM, 3),
    (Id.MAXIMUM_QOS, 1),
    (Id.RETAIN_AVAILABLE, 0),
    (Id.MAXIMUM_PACKET_SIZE, 5000),
    (Id.TOPIC_ALIAS_MAXIMUM, 4),
    (Id.REASON_STRING, b"welcome"),
    (Id.USER_PROPERTY, (b"a", b"b")),
    (Id.WILDCARDS_AVAILABLE, 0),
    (Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 0),
    (Id.SHARED_AVAILABLE, 0),
    (Id.SERVER_KEEP_ALIVE, 9),
    (Id.RESPONSE_INFORMATION, b"info/"),
    (Id.SERVER_REFERENCE, b"other"),
]


def test_what_the_broker_says_is_in_server(clock: Clock) -> None:
    bench = Bench5(clock, clean_session=False, session_expiry=500).accepted(*SAYS)
    server = bench.client.server
    assert (server.session_expiry, server.receive_maximum, server.max_qos) == (100, 3, 1)
    assert (server.retain, server.maximum_packet_size, server.topic_alias_maximum) == (0, 5000, 4)
    assert (server.wildcards, server.identifiers, server.shared) == (0, 0, 0)
    assert (server.keep_alive, server.response_information) == (9, b"info/")
    assert (server.reference, server.reason) == (b"other", b"welcome")
    assert "receive_maximum=3" in repr(server)
    bench.outage()
    bench.accepted()  # says nothing: nothing of the last one is left
    assert (server.session_expiry, server.receive_maximum, server.max_qos) == (-1, 65535, 2)
    assert (server.retain, server.maximum_packet_size, server.topic_alias_maximum) == (1, 0, 0)
    assert (server.wildcards, server.identifiers, server.shared) == (1, 1, 1)
    assert (server.keep_alive, server.reference, server.reason) == (-1, None, None)
    assert bench.client.max_qos == 2


def _quiet(bench: Bench5, ms: int) -> list[str]:
    """Return what leaves in that time, of a client whose PINGREQ is answered."""
    names = []
    end = bench.clock.now + ms
    while bench.clock.now < end:
        bench.pass_time(250)
        for name in bench.names():
            names.append(name)
            bench.feed(build.PINGRESP)
    return names


@pytest.mark.parametrize("keepalive", [0, 60, 1000])
def test_the_servers_keep_alive_is_used(keepalive: int, clock: Clock) -> None:
    bench = Bench5(clock, keepalive=keepalive).accepted((Id.SERVER_KEEP_ALIVE, 8))
    assert _quiet(bench, 8000) == ["PINGREQ"]
    bench.outage()
    for zero in ([(Id.SERVER_KEEP_ALIVE, 0)], []):  # the client looks for dead links all the same
        bench.accepted(*zero)
        assert _quiet(bench, 60_000) == {0: [], 60: ["PINGREQ"], 1000: []}[keepalive]
        bench.outage()


def test_the_identifier_that_the_broker_assigns_is_used_from_then_on(broker: FakeBroker) -> None:
    client = online(broker, b"", clean_session=False, password=lambda: b"p")
    assert client.server.client_id == b"assigned-1"
    for _ in range(2):
        again(broker, client)
        assert client.session_present
    hellos = [(p.connect.client_id, p.connect.password) for p in named(broker, "CONNECT")]
    assert hellos == [(b"", b"p"), (b"assigned-1", b"p"), (b"assigned-1", b"p")]
    assert client.server.client_id == b"assigned-1"


@pytest.mark.parametrize("client_id", [b"", b"unit"])
def test_a_refusal_assigns_no_identifier(client_id: bytes, clock: Clock) -> None:
    """Nor limits: they are those of a connection, and the reason is what it has to say."""
    bench = Bench5(clock, client_id=client_id)
    assigned = [(Id.ASSIGNED_CLIENT_IDENTIFIER, b"given")]
    said = [(Id.RECEIVE_MAXIMUM, 1), (Id.REASON_STRING, b"later"), (Id.SERVER_REFERENCE, b"b")]
    bench.greet()
    bench.feed(build.connack(0x88, 0, properties(said + assigned)))
    server = bench.client.server
    assert (server.client_id, server.receive_maximum) == (None, 65535)
    assert (server.reason, server.reference) == (b"later", b"b")
    bench.accepted(*([] if client_id else assigned))
    assert server.client_id == (None if client_id else b"given")


# What it costs those who do not ask for it


def test_version_4_loads_nothing_of_mqtt_5() -> None:
    program = "import sys; from flatmq import Client; Client(b'c', 'h'); print(*sys.modules)"
    said = printed("cpython", "", "-c", program, folders=[library("cpython")])
    loaded = {name.partition(".")[2] for name in said.split() if name[:7] == "flatmq."}
    assert "engine" in loaded
    assert {name for name in loaded if name.startswith("v5")} == set()
    assert not loaded & {"properties", "replies"}


LOADED = """
import sys
from flatmq import Client
got = []
client = Client(
    {name!r}, {host!r}, {port}, version=5, on_message=lambda m: got.append(m.retain){more}
)
client.subscribe(b"t", client.on_message, 1, retain_as_published={retain})
client.start()
while not client.connected:
    client.poll(1000)
client.publish(b"t", b"x", 1, {retain})
while not got:
    client.poll(1000)
print(*got)
print(*sorted(name for name in sys.modules if name.startswith("flatmq")))
"""


def _loaded(broker: FakeBroker, name: bytes, retain: bool, more: str = "") -> str:
    """Return the modules that a board has loaded once it has published and received."""
    program = LOADED.format(
        name=name, host=broker.host, port=broker.port, retain=retain, more=more
    )
    said = printed("micropython", "192k", "-c", program, folders=[library("micropython")])
    received, modules = said.splitlines()
    assert received == str(int(retain))
    return modules


def test_an_assigned_name_a_retained_message_and_a_password_keep_no_code_loaded(
    broker: FakeBroker,
) -> None:
    usual = _loaded(broker, b"mine", False)
    assert "flatmq.engine" in usual
    assert _loaded(broker, b"", False) == usual
    assert _loaded(broker, b"mine", False, ", user='me', password=lambda: 'a token'") == usual
    assert _loaded(broker, b"mine", True) == usual


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_broker_that_accepts_no_acknowledgement_is_left(most: int, clock: Clock) -> None:
    """Nor is there a DISCONNECT, which may be too large as well."""
    bench = Bench5(clock, on_message=print).accepted((Id.MAXIMUM_PACKET_SIZE, most))
    assert not bench.client.connected
    assert bench.client.error.kind == "protocol"
    assert "Maximum Packet Size below 4" in bench.client.error.detail
    assert bench.names() == []


def test_the_smallest_packets_that_acknowledge(clock: Clock) -> None:
    bench = Bench5(clock, on_message=lambda message: None)
    bench.accepted((Id.MAXIMUM_PACKET_SIZE, 4))
    bench.feed(build.publish(b"t", b"x", 1, 7))
    assert bench.names() == ["PUBACK"]
    with pytest.raises(ValueError, match="DISCONNECT must be at most 4 bytes, not 9"):
        bench.client.disconnect(session_expiry=0)
    bench.client.disconnect(with_will=True)
    assert bench.names() == ["DISCONNECT"]


@pytest.mark.parametrize("version", [5, None])
def test_a_connack_larger_than_the_buffer_says_what_to_change(
    version: int | None, clock: Clock
) -> None:
    """It is no reason to speak 3.1.1, and the pauses between the tries grow."""
    pairs = [(Id.USER_PROPERTY, (b"name", b"x" * 90))] * 6
    bench = Bench5(clock, version=version, quiet=True)
    pauses = []
    for _ in range(5):
        bench.accepted(*pairs)
        error = bench.client.error
        assert (error.kind, bench.client.state) == ("resource", "waiting")
        assert str(error).endswith("packet 0x20: larger than rx_size, which is 512 bytes")
        pauses.append(bench.client.due - clock.now)
    assert pauses[-1] > 4 * pauses[0]
    large = Bench5(clock, version=version, rx_size=1024).accepted(*pairs)
    assert (large.client.connected, large.client.level) == (True, 5)
