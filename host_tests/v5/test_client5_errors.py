"""The ends of connections: broken rules, DISCONNECT, and what the application learns."""

import pytest

from brokers.fake import FakeBroker
from packets import build
from packets.properties import Id, properties
from packets.test_packets import REFUSED, SERVER
from unit.fake_link import Clock
from v5.clients5 import Bench5, Reports, named, online, until


def _waiting(clock: Clock, data: bytes) -> Bench5:
    """A client that waits for a packet like this one: CONNACK, or an answer to identifier 7."""
    auth = ("m", lambda data: b"") if data[0] >> 4 == 0xF else None
    bench = Bench5(clock, auth=auth)
    if data[0] >> 4 == 2:
        bench.greet()
        return bench
    bench.accepted(*([(Id.AUTHENTICATION_METHOD, b"m")] if auth else []))
    bench.client.last_id = 6
    if data[0] >> 4 == 9:
        bench.client.subscribe(b"a", print)
    elif data[0] >> 4 == 11:
        bench.client.unsubscribe(b"a")
    elif data[0] >> 4 in (4, 5):
        bench.client.publish(b"a", b"", 1 if data[0] >> 4 == 4 else 2)
    bench.drain()
    return bench


NOT_NAMES = ("topic name: empty", "wildcard", "U+0000", "UTF-8")
# Rules that a client need not watch over: what breaks them is whole and clear without them.
TOLERATED = {
    "e0 01 04",  # DISCONNECT with a reason code that no server sends
    "40 03 00 07 92",  # another reason code of refusal than PUBACK has,
    "62 03 00 07 80",  # and than PUBREL has
    "30 05 00 01 61 80 00",  # a number with a needless byte
    # Topic names that are not valid: the message is skipped.
    *(data for _, data, _, rule in REFUSED if rule in NOT_NAMES and data.startswith("30")),
}
# Packets whose fault has another name here.
OTHERWISE = {
    "10 00": 0x81,  # a type that no server sends, as any other that there is not
    "c0 00": 0x81,
    "21 03 00 00 00": 0x82,  # no CONNACK, so CONNACK is not first
    "e0 07 8b 05 11 00 00 00 01": 0x81,  # a property that DISCONNECT of a server cannot have
    "f0 01 18": 0x82,  # the authentication method is looked for first
}

BROKEN = [case[1:3] for case in REFUSED if case[0] == SERVER]


@pytest.mark.parametrize(("data", "code"), BROKEN, ids=[case[0] for case in BROKEN])
def test_the_broker_hears_which_rule_it_broke(clock: Clock, data: str, code: int) -> None:
    packet = bytes.fromhex(data)
    bench = _waiting(clock, packet)
    bench.feed(packet)
    if data in TOLERATED:
        assert "DISCONNECT" not in bench.names()
        return
    sent, error = bench.farewell()
    assert sent == OTHERWISE.get(data, code)
    assert error.kind in ("protocol", "resource")
    assert error.code == 0


# The names of section 2.4
_NAMES = """
Unspecified error, Malformed Packet, Protocol Error, Implementation specific error, Unsupported
Protocol Version, Client Identifier not valid, Bad User Name or Password, Not authorized, Server
unavailable, Server busy, Banned, Server shutting down, Bad authentication method, Keep Alive
timeout, Session taken over, Topic Filter invalid, Topic Name invalid, Packet Identifier in use,
Packet Identifier not found, Receive Maximum exceeded, Topic Alias invalid, Packet too large,
Message rate too high, Quota exceeded, Administrative action, Payload format invalid, Retain not
supported, QoS not supported, Use another server, Server moved, Shared Subscriptions not
supported, Connection rate exceeded, Maximum connect time, Subscription Identifiers not
supported, Wildcard Subscriptions not supported
"""
NAMES = dict(enumerate(" ".join(_NAMES.split()).split(", "), 0x80))

# CONNACK refuses


@pytest.mark.parametrize("code", NAMES)
def test_connack_refuses(code: int, clock: Clock) -> None:
    bench = Bench5(clock)
    bench.greet()
    more = [(Id.REASON_STRING, b"not today"), (Id.SERVER_REFERENCE, b"other:1883")]
    bench.feed(build.connack(code, 0, properties(more)))
    error = bench.client.error
    assert (error.kind, error.code) == ("refused", code)
    name = NAMES[code].lower()
    said = f"CONNACK: reason code {code:#x}, {name}, not today, other:1883"
    assert error.detail.lower() == said.lower()
    assert bench.client.server.reference == b"other:1883"
    assert bench.client.state == "waiting"


# Reason codes that are not in the standard


@pytest.mark.parametrize("code", [0x8A, 0xA3, 0xFF])
@pytest.mark.parametrize("packet", ["PUBACK", "PUBREC", "PUBCOMP"])
def test_any_reason_code_of_a_failure_is_reported(packet: str, code: int, clock: Clock) -> None:
    reports = Reports()
    bench = Bench5(clock, on_dropped=reports).accepted()
    pid = bench.client.publish(b"t", b"x", 1 if packet == "PUBACK" else 2)
    bench.client.flush()
    if packet == "PUBCOMP":
        bench.feed(build.ack("PUBREC", pid))
    bench.feed(build.ack(packet, pid, code))
    said = f"{packet}: reason code {code:#x}" + ("" if code > 0xA2 else ", banned")
    assert reports.seen == [(pid, b"t", said)]
    assert (bench.client.stats.dropped, bench.client.pending) == (1, 0)
    assert bench.client.publish(b"t", b"y", 2)
    assert bench.client.connected


# DISCONNECT


@pytest.mark.parametrize("code", [0, 0x8B, 0xA2])
def test_disconnect_is_in_the_error_and_the_client_comes_back(
    broker: FakeBroker, code: int
) -> None:
    client = online(broker)
    broker.disconnect(code, [(Id.REASON_STRING, b"because")])
    until(lambda: client.error, client)
    assert (client.error.kind, client.error.code) == ("closed", code)
    name = f", {NAMES[code].lower()}" if code else ""
    assert f"reason code {code:#x}{name}, because" in client.error.detail.lower()
    until(lambda: client.connected, client)
    assert client.error is None


def test_a_session_that_was_taken_over_is_not_taken_back_at_once(clock: Clock) -> None:
    bench = Bench5(clock, retry_ms=10, retry_max_ms=30_000).accepted()
    made = len(bench.link.made)
    bench.feed(build.ending("DISCONNECT", 0x8E))
    assert bench.client.error.code == 0x8E
    bench.pass_time(29_000, 500)
    assert len(bench.link.made) == made
    bench.pass_time(2000, 500)
    assert len(bench.link.made) == made + 1


ACCUSING = [0x80, 0x81, 0x82, 0x83, 0x87, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B]


OTHERS = [None, 0x89, 0x8B, 0x8D, 0x96, 0x98, 0xA0]


@pytest.mark.parametrize("code", ACCUSING + OTHERS)
def test_a_message_that_the_broker_ends_connections_on_is_set_aside(
    code: int | None, clock: Clock
) -> None:
    """Unless the reason says nothing about a message."""
    reports = Reports()
    bench = Bench5(clock, give_up=3, clean_session=False, retry_max_ms=500, on_dropped=reports)
    bench.client.publish(b"bad", b"x", 1)
    bench.client.publish(b"good", b"x", 1)
    for i in range(20):
        bench.accepted(present=i > 0)
        while bench.client.connected:
            bench.drain()
            for packet in bench.packets():
                if packet.name == "PINGREQ":
                    bench.feed(build.PINGRESP)
                elif packet.topic == b"bad":
                    bench.feed(build.ending("DISCONNECT", code))
                else:
                    bench.feed(build.ack("PUBACK", packet.pid))
            if not bench.client.pending:
                break
        if not bench.client.pending:
            break
    assert reports.topics == [b"bad"] * (code in ACCUSING)
    assert bool(bench.client.pending) == (code not in ACCUSING)


# Leaving


def test_disconnect_with_will_and_another_expiry(broker: FakeBroker) -> None:
    client = online(broker, clean_session=False)
    client.set_will(b"w", b"gone")
    assert client.disconnect()
    client.connect(20_000)
    assert client.disconnect(with_will=True, session_expiry=7)
    first, second = named(broker, "DISCONNECT")
    assert (first.code, list(first.properties)) == (0, [])
    assert (second.code, list(second.properties)) == (4, [(Id.SESSION_EXPIRY, 7)])
    assert broker.until(lambda: not broker.online(b"c"), 20)
    assert broker.knows(b"c")
    broker.pass_time(8)
    assert not broker.knows(b"c")


def test_an_expiry_that_connect_did_not_have(broker: FakeBroker) -> None:
    client = online(broker)
    with pytest.raises(ValueError, match="session_expiry of a client that was made with 0"):
        client.disconnect(session_expiry=5)
    assert client.connected
    assert client.disconnect(session_expiry=0)
