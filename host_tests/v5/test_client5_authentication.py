"""Enhanced authentication: SCRAM-SHA-256 as a board does it, and AUTH that breaks a rule."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokers.fake import FakeBroker
from brokers.scram import METHOD, ScramServer
from conftest import ROOT, library, printed
from flatmq import MQTTError
from packets import build
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, again, arrived, made, named, online, serving, until

SHARED = ROOT / "boards" / "shared"
TIMEOUT = 120  # seconds until an interpreter is ended
sys.path.append(str(SHARED))
from scram import Scram, pbkdf2  # noqa: E402

USERS = {b"ann": b"pencil", b"a,b=c": b"x" * 100}
METHODS = (Id.AUTHENTICATION_METHOD, METHOD)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving() as running:
        running.passwords = dict(USERS)
        running.needs_authentication = True
        yield running


# SCRAM-SHA-256


@pytest.mark.parametrize("user", USERS)
def test_scram(broker: FakeBroker, user: bytes) -> None:
    scram = Scram(user, USERS[user])
    client = online(broker, auth=("SCRAM-SHA-256", scram))
    hello, auth = broker.received[:2]
    assert hello.properties.first(Id.AUTHENTICATION_METHOD) == METHOD
    assert (auth.name, auth.code) == ("AUTH", 0x18)
    client.publish(b"t", b"x", 1)
    arrived(broker, client)
    again(broker, client)
    assert [p.name for p in broker.received].count("AUTH") == 2


def test_the_broker_that_does_not_know_the_password_is_refused(broker: FakeBroker) -> None:
    """It answers as if it did, with a signature made with another one."""
    scram = Scram(b"ann", b"pencil")
    seen = []

    def spoilt(data: bytes | None) -> bytes:
        seen.append(data)
        if data and data.startswith(b"v="):
            data = b"v=" + b"A" * 43 + b"="
        answer: bytes = scram(data)
        return answer

    client = made(broker, auth=(METHOD, spoilt))
    with pytest.raises(MQTTError, match="does not know the password") as raised:
        client.connect(int(SECONDS * 1000))
    assert (raised.value.kind, raised.value.code) == ("refused", 0)
    assert not client.connected
    assert [data[:2] if data else data for data in seen] == [None, b"r=", b"v="]


@pytest.mark.parametrize(
    ("auth", "code"),
    [((METHOD, Scram("ann", "wrong")), 0x87), (("OTHER", lambda data: b""), 0x8C)],
    ids=["a wrong password", "a method that the broker does not have"],
)
def test_what_the_broker_refuses(broker: FakeBroker, auth: tuple, code: int) -> None:
    with pytest.raises(MQTTError) as raised:
        online(broker, auth=auth)
    assert (raised.value.kind, raised.value.code) == ("refused", code)


def test_authenticate_again_while_online(broker: FakeBroker) -> None:
    client = online(broker, auth=(METHOD, Scram("ann", "pencil")))
    client.authenticate()
    client.publish(b"t", b"meanwhile", 1)
    until(lambda: len(named(broker, "AUTH")) == 3, client)
    arrived(broker, client)
    assert [p.code for p in named(broker, "AUTH")] == [0x18, 0x19, 0x18]
    assert [p.payload for p in broker.onward] == [b"meanwhile"]
    assert client.stats.losses == 0


def test_authenticating_again_may_fail(broker: FakeBroker) -> None:
    client = online(broker, auth=(METHOD, Scram("ann", "pencil")))
    broker.passwords = {b"ann": b"changed"}
    client.authenticate()
    until(lambda: client.error, client)
    assert (client.error.kind, client.error.code) == ("closed", 0x87)


def test_authenticate_needs_auth(broker: FakeBroker) -> None:
    broker.needs_authentication = False
    client = online(broker)
    with pytest.raises(ValueError, match="authenticate needs a client that was made with auth"):
        client.authenticate()
    assert client.connected


def test_the_password_is_salted_once() -> None:
    scram = Scram("ann", "pencil")
    servers = [ScramServer(USERS, salt=b"salt", nonce=b"%d" % i) for i in range(2)]
    for server in servers:
        scram(server.final(scram(server.first(scram(None)))))
    salted = scram.salted
    assert salted == (b"salt", 4096, pbkdf2(b"pencil", b"salt", 4096))
    later = Scram("ann", "pencil", salted)
    server = ScramServer(USERS, salt=b"salt")
    later(server.final(later(server.first(later(None)))))
    assert later.salted is salted


# The exchange of RFC 7677 section 3
NONCE = b"rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL += b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

PROGRAM = """
import sys
sys.path.append({folder!r})
import scram
from flatmq import Client
s = scram.Scram("user", "pencil")
s(None)
s._nonce = {nonce!r}
s._bare = b"n=user,r=" + s._nonce
print(s({first!r}) == {final!r})
print(s({verifier!r}) == b"")
auth = ("SCRAM-SHA-256", scram.Scram("ann", "pencil"))
client = Client(b"c", {host!r}, {port}, version=5, auth=auth)
client.connect({ms})
print(client.publish(b"t", b"from here", 1) > 0, client.wait({ms}))
client.disconnect()
"""


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_on_both_interpreters(python: str, broker: FakeBroker) -> None:
    program = PROGRAM.format(
        folder=str(SHARED),
        nonce=NONCE,
        first=FIRST,
        final=FINAL,
        verifier=VERIFIER,
        host=broker.host,
        port=broker.port,
        ms=int(SECONDS * 1000),
    )
    folders = [library(python)]
    said = printed(python, "192k", "-c", program, folders=folders, timeout=TIMEOUT)
    assert said.split() == ["True", "True", "True", "True"]
    assert [p.payload for p in broker.onward] == [b"from here"]


BAD = [
    (b"r=other,s=QQ==,i=4096", "another message"),
    (NONCE + b",s=QQ==,i=4096", "another message"),
    (b"r=" + NONCE + b",s=QQ==,i=4096", "another message"),  # nothing of the broker's in it
    (b"r=" + NONCE + b"x,s=QQ==,i=4095", "iterations must be 4096 to 100000, not 4095"),
    (b"r=" + NONCE + b"x,s=QQ==,i=100001", "not 100001"),
    (b"r=" + NONCE + b"x,s=QQ==,i=x", "message is malformed"),
    (b"r=" + NONCE + b"x,i=4096", "message is malformed"),
    (b"", "message is malformed"),
    (b"v=", "does not know"),
    (b"v=AAAA", "does not know"),
    (VERIFIER, "does not know"),
]


@pytest.mark.parametrize(("data", "text"), BAD)
def test_what_a_broker_may_not_say(data: bytes, text: str) -> None:
    scram = Scram("user", "pencil")
    scram(None)
    scram._nonce = NONCE
    with pytest.raises(MQTTError, match=text) as raised:
        scram(data)
    assert raised.value.kind == "refused"


# Without a network


def _asked(clock: Clock, answer: Callable[[bytes | None], Any] = lambda data: b"a") -> Bench5:
    bench = Bench5(clock, auth=(METHOD, answer))
    bench.greet()
    return bench


def _auth(code: int, *more: tuple[int, Any]) -> bytes:
    return build.ending("AUTH", code, properties(more))


@pytest.mark.parametrize("at", ["CONNECT", "AUTH", "CONNACK", "again"])
def test_what_auth_raises_ends_the_connection(at: str, clock: Clock) -> None:
    def answer(data: bytes | None) -> bytes:
        if at == "CONNECT":
            raise MQTTError("resource", "the key is not there")
        if data == b"bad":
            raise ValueError("no such key")
        return b""

    data = (Id.AUTHENTICATION_DATA, b"bad")
    if at == "CONNECT":
        bench = Bench5(clock, auth=(METHOD, answer))
        bench.client.start()
        bench.pass_time(2000)
        error = bench.client.error
        assert (error.kind, error.detail) == ("resource", "the key is not there")
        return
    bench = _asked(clock, answer)
    if at == "CONNACK":
        bench.feed(build.connack(0, 0, properties([METHODS, data])))
    else:
        if at == "again":
            bench.feed(build.connack(0, 0, properties([METHODS])))
        bench.feed(_auth(0x18, METHODS, data))
    error = bench.client.error
    assert error.kind == "refused"
    assert error.detail == "auth: ValueError", "its text may be secret"
    assert bench.client.state == "waiting"
    assert not bench.client.connected


def test_auth_waits_for_room_to_be_answered(clock: Clock) -> None:
    bench = _asked(clock).accepted(METHODS)
    bench.stream.room = 0
    bench.feed(*[_auth(0x18, METHODS)] * 10)
    assert len(bench.client.acks) < 100
    bench.stream.room = None
    bench.drain()
    assert bench.names() == ["AUTH"] * 10


def test_no_auth_is_larger_than_the_broker_accepts(clock: Clock) -> None:
    bench = Bench5(clock, auth=(b"m", lambda data: b"0123456789"))
    method = (Id.AUTHENTICATION_METHOD, b"m")
    bench.accepted((Id.MAXIMUM_PACKET_SIZE, 20), method)
    bench.packets()
    with pytest.raises(ValueError, match="AUTH must be at most 20 bytes, not 21"):
        bench.client.authenticate()
    assert bench.client.connected
    bench.feed(build.ending("AUTH", 0x18, [method]))
    assert (bench.client.error.kind, bench.names()) == ("refused", [])


@pytest.mark.parametrize("answers", [[], [0x18], [0x18, 0], [None]])
def test_an_authentication_that_is_not_answered(answers: list[int | None], clock: Clock) -> None:
    bench = Bench5(clock, auth=(METHOD, lambda data: b"a"), keepalive=0, ack_timeout=9)
    bench.accepted(METHODS)
    bench.pass_time(60_000)
    bench.client.authenticate()
    for code in answers:
        bench.pass_time(5_000)
        bench.feed(b"\xf0\0" if code is None else _auth(code, METHODS))
    assert bench.client.connected
    bench.pass_time(13_000)
    if answers[-1:] in ([0], [None]):
        assert bench.client.connected
    else:
        error = bench.client.error
        assert (error.kind, error.detail) == ("timeout", "no acknowledgement in time")
