"""TLS between the client and mosquitto, on both interpreters."""

import datetime
import errno
import importlib
import select
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import sizes
from certs.answering import answering
from conftest import PYTHONS
from device import on_device
from flatmq import Client, stream_tls_errors
from flatmq.stream_tls import TLS
from flatmq_rigs.proxy import Proxy, Rules, Way
from sizes import spread
from tls import failures
from tls.secure_broker import SecureBroker

HERE = Path(__file__).parent
DEADLINE = 120  # seconds until an interpreter is ended from outside
HANDSHAKE = 1500  # bytes of either side, or more
CA: dict[str, Any] = {"ca": "ca.der"}
EVERY_QOS = "versions.mqtt_3_1_1"  # a message there and back at each

# What works: arguments of TLS and, where it is another one, the listener.
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "authority": (CA, "broker"),
    "authority as bytes": ({"ca": "@ca.der"}, "broker"),
    "authority in PEM": ({"ca": "ca.pem"}, "broker"),
    "authority in PEM as bytes": ({"ca": "@ca.pem"}, "broker"),
    "another name than the host": ({**CA, "server_hostname": "broker.example"}, "named"),
    "client certificate": ({**CA, "cert": "client.der", "key": "client.key.der"}, "mutual"),
    "client certificate as bytes": (
        {**CA, "cert": "@client.der", "key": "@client.key.der"},
        "mutual",
    ),
    "pin": ({"pin": "pin of broker"}, "broker"),
    "pin needs no clock that is right": ({"pin": "pin of expired"}, "expired"),
    "pin needs no clock that was set": ({"pin": "pin of future"}, "future"),
    "pin needs no name": ({"pin": "pin of named"}, "named"),
    "one of two pins": ({"pin": "pin of ca, pin of broker"}, "broker"),
    "authority and pin": ({**CA, "pin": "pin of broker"}, "broker"),
    "certificate that signs itself": ({"ca": "own.der"}, "own"),
    "insecure": ({"insecure": True}, "expired"),
    "TLS 1.3": (CA, "modern"),
}
# The unix port of MicroPython reads no PEM, and has no TLS 1.3.
ONLY_CPYTHON = {"authority in PEM", "authority in PEM as bytes", "TLS 1.3"}
CASES = [
    (way, python)
    for way in WAYS
    for python in PYTHONS
    if way not in ONLY_CPYTHON or python == "cpython"
]
# Each interpreter has a link of its own for TLS, so a sample has all of them too.
MISTAKES = [
    pytest.param(failure, python, id=f"{failure.name}-{python}")
    for failure in failures.FAILURES
    for python in PYTHONS
    if failure.only in ("", python)
]


pythons = pytest.mark.parametrize("python", PYTHONS)


@pytest.mark.parametrize(("way", "python"), CASES)
def test_publish_and_receive(way: str, python: str, secure: SecureBroker) -> None:
    tls, listener = WAYS[way]
    secure.run(python, EVERY_QOS, tls, listener=listener)


@pythons
def test_by_name(python: str, secure: SecureBroker) -> None:
    secure.run(python, EVERY_QOS, CA, host="localhost")


@pythons
def test_large_messages(python: str, secure: SecureBroker) -> None:
    secure.run(python, "secure_scenarios.large", CA)


@pythons
def test_reconnects(python: str, secure: SecureBroker) -> None:
    secure.run(python, "secure_scenarios.reconnects", {"ca": "@ca.der"})


# Listeners of brokers that close on a mistake: the network may have done that, so connect() looks
# twice, each time after a poll, in which a fast broker may have closed two connections.
CLOSING = ("plain", "mutual", "older")


@pytest.mark.parametrize(("failure", "python"), MISTAKES)
def test_connect_reports_a_mistake_at_once(
    failure: failures.Failure, python: str, secure: SecureBroker
) -> None:
    before = datetime.datetime.now(datetime.timezone.utc).date()
    tries, kind, detail = failures.said(secure, python, failure)
    after = datetime.datetime.now(datetime.timezone.utc).date()
    assert (kind, failure.says in detail) == (failure.kind, True), detail
    assert detail.startswith(f"TLS 127.0.0.1:{secure.ports[failure.listener]}: ")
    assert 1 <= tries <= (4 if failure.listener in CLOSING else 1)
    if "by this clock (" in failure.says:
        assert any(str(day) in detail for day in (before, after)), detail


def _reads(end: socket.socket) -> None:
    while end.recv(4096):
        pass


# What is at the port instead of a broker that a client can use, and the error.
FAR_ENDS: dict[str, tuple[Callable[[socket.socket], object], str, str]] = {
    "is silent": (_reads, "timeout", "no answer to TLS in time: use the port that has TLS"),
    "closes": (lambda end: end.recv(4096), "tls", "or allow TLS 1.2 at the broker"),
    "has TLS 1.3 only": (
        lambda end: end.recv(4096) and end.sendall(b"\x15\3\3\0\2\2\x46"),
        "tls",
        "no TLS version or cipher in common: allow TLS 1.2",
    ),
}


@spread("far_end", FAR_ENDS, link=("TLS", "websocket"), python=PYTHONS)
def test_who_is_at_the_port(far_end: str, link: str, python: str, secure: SecureBroker) -> None:
    answer, kind, text = FAR_ENDS[far_end]
    with answering(answer) as address:
        port = int(address.rpartition(":")[2])
        scenario = "secure_scenarios.first_error"
        error = secure.run(python, scenario, CA, port=port, option=link)["error"]
    assert error[0] == kind
    assert text in " ".join(error)


@spread("way", ("up", "down"), python=PYTHONS)
def test_connect_goes_on_after_a_cut(way: str, python: str, secure: SecureBroker) -> None:
    """One handshake that is cut, before or after the broker's certificate, proves nothing."""

    def rules(count: int) -> Rules:
        return Rules() if count else Rules(**{way: Way(limit=300, then="cut")})

    with Proxy("127.0.0.1", secure.ports["broker"], rules) as proxy:
        scenario = "secure_scenarios.connect_after_losses"
        assert secure.run(python, scenario, CA, port=proxy.port)["losses"] == ["1"]


@pythons
@pytest.mark.parametrize("way", ["authority", "pin"])
def test_a_broker_that_is_not_trusted_gets_no_connect(
    way: str, python: str, secure: SecureBroker
) -> None:
    """CONNECT has the password.

    mosquitto logs whoever connects, and here only the last one.
    """
    tls = {"authority": {"ca": "other.der"}, "pin": {**CA, "pin": "pin of ca"}}[way]
    before = secure.broker.log().count("New client connected")
    secure.run(python, "secure_scenarios.connect_raises", tls)
    secure.run(python, "secure_scenarios.reconnects", CA, option="1")
    assert secure.broker.log().count("New client connected") == before + 1


@pythons
def test_the_handshake_waits_for_the_broker(python: str, secure: SecureBroker) -> None:
    """poll(100) waits, and does not look for something to do all the time."""
    delayed = Rules(Way(delay=0.25), Way(delay=0.25))
    with Proxy("127.0.0.1", secure.ports["broker"], lambda count: delayed) as proxy:
        printed = secure.run(python, "secure_scenarios.turns", CA, port=proxy.port)
    turns, ms = map(int, printed["turns"])
    assert ms >= 1000
    assert turns <= ms // 100 + 15


class Poll:
    """The `select.poll` of a board: what was waited for, for how many ms."""

    def __init__(self) -> None:
        self.events = 0
        self.waits: list[tuple[int, int]] = []

    def register(self, sock: object, events: int) -> None:
        self.events = events

    modify = register

    def ipoll(self, ms: int) -> list[tuple[object, int]]:
        self.waits.append((ms, self.events))
        return [(None, select.POLLOUT)]


def test_a_board_waits_for_room_only_while_something_is_to_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And after a connection has ended it waits without looking at it."""
    monkeypatch.setitem(sys.modules, "tls", ModuleType("tls"))
    board = importlib.import_module("flatmq.stream_tls_board")
    polls: list[Poll] = []
    naps: list[int] = []
    monkeypatch.setattr(select, "poll", lambda: polls.append(Poll()) or polls[-1])
    monkeypatch.setattr(time, "sleep_ms", naps.append, raising=False)
    context = SimpleNamespace(wrap_socket=lambda s, **_: s)
    link = board.Link(TLS(insecure=True, reserve=False), "broker", 8883, context)
    with socket.socket() as s:
        link.socket, link.poll = s, Poll()
        assert link.stream() is s
        link.wait(5, False)  # ends the handshake
        for out in (True, True, False):
            link.wait(6, out)
    both = select.POLLIN | select.POLLOUT
    assert polls[0].waits[-4:] == [(5, select.POLLIN), (6, both), (6, both), (6, select.POLLIN)]
    link.close()
    link.wait(7, False)
    assert naps == [7]


@spread("way", ("up", "down"), python=PYTHONS)
def test_a_handshake_that_is_cut(way: str, python: str, secure: SecureBroker) -> None:
    """After each number of bytes; on MicroPython, which takes longer, after each third."""
    at = sizes.sample(range(0, HANDSHAKE, 1 if python == "cpython" else 3), 60)

    def rules(count: int) -> Rules:
        if count >= len(at):
            return Rules()
        return Rules(**{way: Way(limit=at[count], then="cut" if count % 2 else "reset")})

    with Proxy("127.0.0.1", secure.ports["broker"], rules) as proxy:
        printed = secure.run(python, "secure_scenarios.through_cuts", CA, port=proxy.port)
    losses, *kinds = printed["losses"]
    assert int(losses) > len(at) // 5
    assert set(kinds) <= {"tls", "closed"}


@pythons
def test_byte_by_byte(python: str, secure: SecureBroker) -> None:
    trickle = Rules(Way(trickle=True), Way(trickle=True))
    with Proxy("127.0.0.1", secure.ports["broker"], lambda count: trickle) as proxy:
        secure.run(python, EVERY_QOS, CA, port=proxy.port)


def _on_device(program: str, heap: str, *arguments: str) -> list[str]:
    return on_device.run(HERE / program, *arguments, heap=heap, timeout=DEADLINE)


def _where(secure: SecureBroker) -> tuple[str, str, str]:
    return "127.0.0.1", str(secure.ports["broker"]), secure.path("ca.der")


@pytest.mark.parametrize("name", on_device.operations("sockets"))
def test_nothing_is_allocated(name: str, secure: SecureBroker) -> None:
    seen = _on_device("prove_tls.py", "128k", "sockets", name, "0", *_where(secure))
    assert seen == ["0", "0", "0"]


@pytest.mark.parametrize("name", on_device.operations("umqtt_calls"))
def test_umqtt_allocates_nothing(name: str, secure: SecureBroker) -> None:
    """With an SSLContext of the program."""
    seen = _on_device("prove_tls.py", "192k", "umqtt_calls", name, "0", *_where(secure))
    assert seen == ["0", "0", "0"]


@pytest.mark.parametrize("name", ["ten_mixed_messages", "reconnect_over_tcp"])
def test_the_heap_is_where_it_was(name: str, secure: SecureBroker) -> None:
    """After 200 messages, and after 20 connections."""
    seen = _on_device("prove_tls.py", "128k", "settling", name, "20", *_where(secure))
    assert seen == ["0"]


def _reconnects(
    secure: SecureBroker, heap: str, reserve: bool, when: str, rounds: int
) -> list[str]:
    return _on_device("full_heap.py", heap, *_where(secure), str(reserve), when, str(rounds))


@pytest.mark.parametrize("when", ["online", "offline"])
@pytest.mark.parametrize("heap", sizes.sample(["150k", "168k", "177k", "192k", "201k"], 2))
def test_the_reserve_lets_it_reconnect_in_a_full_heap(
    when: str, heap: str, secure: SecureBroker
) -> None:
    """Wherever the heap ends."""
    rounds = 100 if sizes.whole() else 20
    assert _reconnects(secure, heap, True, when, rounds) == [str(rounds)]


def test_the_application_claims_memory_below_the_buffers_of_tls() -> None:
    """Else what it keeps would split the place of a buffer, once that was released."""
    assert _on_device("below.py", "150k") == ["1"]


def test_without_the_reserve_a_full_heap_is_said(secure: SecureBroker) -> None:
    connects, kind, *detail = _reconnects(secure, "192k", False, "offline", 100)
    assert (connects, kind) == ("1", "resource")
    assert "no memory for TLS" in " ".join(detail)


PIN = "A" * 43 + "="


@pytest.mark.parametrize(("given", "says"), [
    ({}, "TLS needs ca"),
    ({"ca": b""}, "TLS needs ca"),
    ({"ca": 5}, "ca must be bytes or the path of a file, not int"),
    ({"ca": "ca.der", "cert": "cert.der"}, "cert and key must be given together"),
    ({"ca": "ca.der", "key": "key.der"}, "cert and key must be given together"),
    ({"pin": "abc"}, "pin must be a SHA-256"),
    ({"pin": b"abc"}, "pin must be a SHA-256"),
    ({"pin": (PIN, "?")}, "pin must be a SHA-256"),
    ({"pin": 5}, "pin must be bytes, str or a tuple of them, not 5"),
    ({"pin": PIN, "insecure": True}, "insecure must be False"),
    ({"ca": "ca.der", "server_hostname": b"x"}, "server_hostname must be str, not b'x'"),
    ({"pin": PIN, "reserve": 4095}, "reserve must be a bool or at least 4096 bytes"),
    ({"pin": PIN, "reserve": "all"}, "reserve must be a bool or at least 4096 bytes"),
])  # fmt: skip
def test_arguments(given: dict, says: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        TLS(**given)
    assert says in str(raised.value)


ALERT = -30592
CLOSED = -29312


@pytest.mark.parametrize(("number", "certified", "kind", "says"), [
    (-30336, False, "tls", "no authority is given"),
    (-9984, True, "tls", "unknown authority"),
    (ALERT, False, "tls", "allow TLS 1.2"),
    (ALERT, True, "tls", "needs a client certificate"),
    (CLOSED, False, "tls", "the port that has TLS"),
    (CLOSED, True, "tls", "needs a client certificate"),
    (errno.ECONNRESET, True, "tls", "needs a client certificate"),
    (-errno.ECONNRESET, False, "tls", "the port that has TLS"),
    (-29184, False, "tls", "the port that has TLS"),
    (-28160, True, "tls", "the handshake failed: OSError: "),
    (errno.ENOMEM, False, "resource", "no memory for TLS"),
    (-17168, True, "resource", "no memory for TLS"),
    (-32512, True, "resource", "no memory for TLS"),
    (16, True, "resource", "no memory for TLS"),  # MBEDTLS_ERR_MPI_ALLOC_FAILED
    (106, False, "resource", "no memory for TLS"),  # MBEDTLS_ERR_ASN1_ALLOC_FAILED
    (-0x4F90, True, "resource", "no memory for TLS"),  # of ECP, because of bignum
    (-0x3400, True, "resource", "esp32.idf_heap_info"),  # of DHM
    (-0x7A00, True, "tls", "the certificate is not for servers"),
])  # fmt: skip
def test_numbers_of_mbed_tls(number: int, certified: bool, kind: str, says: str) -> None:
    """As old firmware raises them, without a text."""
    error = stream_tls_errors.of_board(
        OSError(number, ""),
        *("handshake", certified, False, None, (), "broker.example", "broker.example:8883"),
    )
    assert error is not None
    assert (error.kind, says in str(error.detail)) == (kind, True), error.detail


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EHOSTUNREACH])
def test_the_network_is_not_tls(number: int) -> None:
    where = ("handshake", True, False, None, (), "broker.example", "broker.example:8883")
    assert stream_tls_errors.of_board(OSError(number, ""), *where) is None


def test_the_port_of_the_client() -> None:
    assert Client(b"c", "localhost").link.port == 1883
    assert Client(b"c", "localhost", tls=TLS(pin=PIN)).link.port == 8883
    assert Client(b"c", "localhost", 443, tls=TLS(pin=PIN)).link.port == 443
    with pytest.raises(TypeError, match="tls must be a TLS, not bool"):
        Client(b"c", "localhost", tls=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tls must be None with a link"):
        Client(b"c", tls=TLS(pin=PIN), link=Client(b"c", "localhost").link)
