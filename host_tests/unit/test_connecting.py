"""Connecting, trying again and leaving: CONNECT, CONNACK and DISCONNECT."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import flatmq.dial
import peer
from brokers.scripted import fail
from flatmq import MQTTError, stream_cpython, stream_tcp
from unit.both_versions import CODES, VersionBench
from unit.fake_link import Bench, Clock, raises


class Dice(SimpleNamespace):
    """The random numbers with the largest or the smallest value."""

    def __init__(self, largest: bool) -> None:
        super().__init__(getrandbits=lambda bits: (1 << bits) - 1 if largest else 0)


def tries(bench: Bench, number: int) -> list[int]:
    """The ms between that many tries to connect."""
    found: list[int] = []
    last = bench.clock.now
    bench.client.start()
    while len(found) < number:
        bench.clock.now += 1
        bench.client.poll()
        if bench.link.calls and bench.link.calls[-1] == "connect":
            found.append(bench.clock.now - last)
            last = bench.clock.now
            bench.link.calls.clear()
    return found[1:]


def pause(bench: Bench) -> int:
    """End the connection; return the ms until the client tries again."""
    bench.lose()
    lost = bench.clock.now
    bench.client.poll()
    while bench.client.state == "waiting":
        bench.clock.now += 1
        bench.client.poll()
    return bench.clock.now - lost


# Pauses


@pytest.mark.parametrize("largest", [False, True])
def test_the_pause_doubles_to_its_limit(
    largest: bool, make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flatmq.dial, "random", Dice(largest))
    bench = make(retry_ms=100, retry_max_ms=1000)
    bench.link.fails = "connect"
    pauses = tries(bench, 8)
    wanted = [100, 200, 400, 800, 1000, 1000, 1000]
    low, high = (0.97, 1.03) if largest else (0.48, 0.53)
    for found, full in zip(pauses, wanted, strict=True):
        assert low * full - 5 <= found <= high * full + 5
    assert bench.client.error.kind == "closed"
    assert bench.client.stats.losses == 8


def test_the_pause_starts_again_after_a_while_online(make: Callable) -> None:
    bench = make(retry_ms=100, retry_max_ms=100_000, keepalive=0)
    bench.link.fails = "connect"
    tries(bench, 7)
    bench.link.fails = ""
    bench.online()
    bench.pass_time(11_000)
    assert pause(bench) <= 101


def test_a_broker_that_closes_at_once_is_tried_less_and_less_often(make: Callable) -> None:
    bench = make(retry_ms=100, retry_max_ms=100_000, keepalive=0)
    pauses = []
    for _ in range(8):
        bench.online()
        bench.pass_time(200)
        pauses.append(pause(bench))
    assert pauses[-1] >= 50 * 2**7
    assert pauses == sorted(pauses)


def test_a_name_is_looked_up_once_and_again_after_some_failures(make: Callable) -> None:
    bench = make(retry_ms=10, retry_max_ms=10)
    bench.online()
    bench.lose()
    bench.online()
    assert bench.link.calls.count("resolve") == 1
    bench.lose()
    bench.link.fails = "connect"
    bench.pass_time(200)
    assert bench.link.calls.count("resolve") > 1


# What ends a try


@pytest.mark.parametrize("slow", [0, 10**9], ids=["greeting", "connecting"])
def test_a_peer_that_says_nothing_is_given_up(slow: int, make: Callable) -> None:
    bench = make(timeout=3)
    bench.link.slow = slow
    bench.client.start()
    bench.pass_time(2900)
    assert bench.client.state == ("connecting" if slow else "greeting")
    bench.pass_time(200)
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
    assert not bench.link.open


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 255])
def test_a_connack_code_is_reported(code: int, make: Callable) -> None:
    bench = make()
    if bench.version == 5 and code not in CODES:
        code = 0x87
    bench.greet()
    bench.feed(peer.connack(code))
    code = CODES.get(code, code) if bench.version == 5 else code
    error = bench.client.error
    assert (error.kind, error.code) == ("refused", code)
    assert "refused" in str(error)
    assert (str(code) if bench.version == 4 else f"{code:#x}") in str(error)
    assert (bench.client.state, bench.link.open) == ("waiting", False)
    bench.online()
    assert bench.client.error is None, "and it goes on trying"


@pytest.mark.parametrize(
    ("code", "outcome"), [(0, None), (5, "refused"), (None, "timeout")], ids=str
)
def test_what_connect_comes_to(code: int | None, outcome: str | None, make: Callable) -> None:
    bench = make()
    if code is not None:
        bench.link.on_wait = [lambda: bench.arrives(peer.connack(code))]
    before = bench.clock.now
    if outcome is None:
        bench.client.connect()
        assert bench.client.connected
        return
    with pytest.raises(MQTTError) as caught:
        bench.client.connect(timeout_ms=3000)
    assert caught.value.kind == outcome
    if code:
        assert caught.value.code == (code if bench.version == 4 else CODES[code])
    else:
        assert bench.clock.now - before == 3000


# Leaving


def test_disconnect_sends_what_is_queued_and_says_so(bench: VersionBench) -> None:
    """That it was handed over is all that a client can know."""
    bench.client.publish(b"t", b"last")
    assert bench.client.disconnect() is True
    publish, disconnect = bench.sent()
    assert peer.take_apart(publish).payload == b"last"
    assert disconnect == (0xE0, b"")
    assert (bench.client.state, bench.client.error, bench.link.open) == ("offline", None, False)
    bench.pass_time(100_000, step=1000)
    assert (len(bench.link.made), bench.client.state) == (1, "offline"), "and it stays so"


def test_disconnect_waits_until_the_peer_has_closed_and_no_longer(bench: VersionBench) -> None:
    """Closing with unread bytes would reset the connection and lose what was sent."""
    before = bench.clock.now
    stream = bench.stream

    def close() -> None:
        stream.ended = True

    bench.link.on_wait = [lambda: stream.incoming.append(b"\xd0"), close]
    assert bench.client.disconnect() is True
    assert (bench.link.on_wait, bench.clock.now) == ([], before)


@pytest.mark.parametrize("room", [0, 1, 2])
@pytest.mark.parametrize("queued", [False, True])
def test_disconnect_gives_up_after_its_time(queued: bool, room: int, bench: VersionBench) -> None:
    """The broker will publish the will."""
    if queued:
        bench.client.publish(b"t", b"last", 1)
    bench.stream.room = room
    before = bench.clock.now
    handed_over = room == 2 and not queued
    assert bench.client.disconnect(timeout_ms=500) is handed_over
    assert (bench.clock.now - before, bench.client.state) == (500, "offline")
    assert bench.client.pending == queued, "what is not acknowledged is kept"
    bench.online()
    assert [p.payload for p in bench.published()] == [b"last"] * queued


def test_disconnect_leaves_without_answers_that_are_held_back(bench: VersionBench) -> None:
    bench.client.gate = lambda same: False
    bench.feed(peer.publish(b"t", b"", 1, 1))
    assert bench.client.disconnect() is True
    assert bench.sent() == [(0xE0, b"")]


def test_disconnect_leaves_if_the_gate_raises(bench: VersionBench) -> None:
    """Nothing is acknowledged, and the error is raised as by poll()."""
    bench.client.gate = raises(OSError(5, "the flash"))
    bench.arrives(peer.publish(b"t", b"", 1, 1))
    for call in (bench.client.poll, bench.client.disconnect):
        with pytest.raises(OSError, match="the flash"):
            call()
    assert bench.sent() == [(0xE0, b"")]
    assert (bench.client.state, bench.link.open) == ("offline", False)


def test_disconnect_leaves_without_messages_that_may_not_be_sent_yet(bench: VersionBench) -> None:
    """The broker has closed on two, and is to answer a PINGREQ first."""
    bench.client.publish(b"t", b"1", 1)
    bench.client.publish(b"t", b"2", 1)
    bench.client.poll()
    bench.lose()
    bench.online()
    bench.sent()
    assert bench.client.disconnect() is True
    assert [p.first for p in bench.sent()][-1] == 0xE0
    assert bench.client.pending == 2


@pytest.mark.parametrize("queued", [False, True])
def test_disconnect_on_a_broken_connection(queued: bool, bench: VersionBench) -> None:
    if queued:
        bench.client.publish(b"t", b"waits", qos=1)
        bench.client.poll()
    fail(bench.stream, OSError(104, "reset"))  # DISCONNECT is the first to find out
    assert bench.client.disconnect() is False
    assert (bench.client.state, bench.client.pending) == ("offline", queued)
    assert not bench.link.open


@pytest.mark.parametrize("state", ["offline", "waiting", "connecting", "greeting"])
def test_disconnect_in_any_state(state: str, make: Callable) -> None:
    bench = make()
    bench.link.slow = 10**9 if state == "connecting" else 0
    if state != "offline":
        bench.client.start()
    while bench.client.state != state:
        bench.client.poll()
    assert bench.client.disconnect() is False
    assert (bench.client.state, bench.link.open) == ("offline", False)


# CONNECT


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(("version", "name"), [(3, b"\0\6MQIsdp\3"), (4, b"\0\4MQTT\4")])
def test_connect_of_each_version(version: int, name: bytes, clean: bool, clock: Clock) -> None:
    bench = Bench(clock, version=version, clean_session=clean, keepalive=0x0102)
    assert bench.greet().body == name + bytes([2 * clean]) + b"\1\2" + b"\0\4unit"


# Wills and credentials


def fields(packet: peer.Packet) -> tuple[int, list[bytes]]:
    """The connect flags of a CONNECT, and its strings behind the client identifier."""
    rest, found = packet.body[10:], []
    five = packet.body[6] == 5
    if five:
        rest = rest[1 + rest[0] :]
    while rest:
        n = int.from_bytes(rest[:2], "big")
        found.append(rest[2 : 2 + n])
        rest = rest[2 + n :]
        if five and len(found) == 1 and packet.body[7] & 4:  # the properties of the will
            rest = rest[1 + rest[0] :]
    return packet.body[7], found[1:]


def next_connect(bench: Bench) -> tuple[int, list[bytes]]:
    """Accept the connection, end it, and return the fields of the next CONNECT."""
    bench.feed(peer.connack())
    bench.lose()
    return fields(bench.greet())


def test_a_will_and_credentials_keep_each_other(make: Callable) -> None:
    bench = make(user=b"u", password=b"p")
    bench.client.set_will(b"w", b"gone")
    assert fields(bench.greet()) == (0b11000110, [b"w", b"gone", b"u", b"p"])
    bench.client.set_credentials(b"v", b"q")
    assert next_connect(bench) == (0b11000110, [b"w", b"gone", b"v", b"q"])
    bench.client.set_will(None)
    assert next_connect(bench) == (0b11000010, [b"v", b"q"])


@pytest.mark.parametrize(("user", "password", "wanted"), [
    ("ü", "ö", (0b11000010, ["ü".encode(), "ö".encode()])),
    (b"u", None, (0b10000010, [b"u"])),
    (None, None, (0b00000010, [])),
    (b"u", lambda: b"asked", (0b11000010, [b"u", b"asked"])),
    (b"u", lambda: "äsked", (0b11000010, [b"u", "äsked".encode()])),
    (b"", b"", (0b11000010, [b"", b""])),
], ids=["text", "no password", "nobody", "callable", "callable with text", "empty"])  # fmt: skip
def test_credentials(user, password, wanted, make: Callable) -> None:
    bench = make(user=b"old", password=b"old")
    bench.client.set_credentials(user, password)
    assert fields(bench.greet()) == wanted
    assert next_connect(bench) == wanted, "and again"


def test_a_password_is_asked_for_at_each_connect(make: Callable) -> None:
    """A password that cannot be had ends the try."""
    answers: list = [b"token 1", "token 2", LookupError("no token"), b"token 3"]
    asked = 0

    def password() -> bytes | str:
        nonlocal asked
        asked += 1
        answer = answers[asked - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench = make(user=b"u", password=password)
    for _ in range(5):
        bench.client.poll()
    assert asked == 0, "not before CONNECT is made"
    for number in (1, 2):
        assert fields(bench.greet())[1] == [b"u", b"token %d" % number]
        bench.feed(peer.connack())
        bench.pass_time(1000)
        assert asked == number
        bench.lose()
    while bench.client.error.kind == "closed" and "no token" not in bench.client.error.detail:
        bench.clock.now += 50
        bench.client.poll()
    assert "LookupError" in bench.client.error.detail
    assert fields(bench.greet())[1] == [b"u", b"token 3"]


@pytest.mark.parametrize("module", [stream_cpython, stream_tcp])
def test_ipv4_is_preferred_to_ipv6(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    of_6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1883, 0, 0))
    of_4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1883))
    for found, chosen in (([of_6, of_4], of_4), ([of_4, of_6], of_4), ([of_6], of_6)):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found: found)
        link = module.TCP("broker", 1883)
        link.resolve()
        assert link.address == chosen


def test_what_cannot_be_reconfigured_stays_as_it_is(make: Callable) -> None:
    client = make(keepalive=60).client
    before = client.hello, client.clean, client.keepalive
    with pytest.raises(TypeError, match="user must be"):
        client.reconfigure(b"other", 5, None, 10, False, 10, None, client.link)
    assert (client.hello, client.clean, client.keepalive) == before
