"""TLS between the client and mosquitto, on both interpreters."""

from __future__ import annotations

import datetime
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import interpreter_command
from device import on_device
from flatmq import Client, stream_tls_errors
from flatmq.stream_tls import TLS
from flatmq_rigs.proxy import Proxy, Rules, Way
from flatmq_tools import interpreter
from tls import failures
from tls.secure_broker import DEADLINE, PYTHONS, SecureBroker

HERE = Path(__file__).parent
HANDSHAKE = 1500  # bytes of either side, or more
pythons = pytest.mark.parametrize("python", PYTHONS)
mistakes = pytest.mark.parametrize(
    ("python", "failure"),
    [
        pytest.param(python, failure, id=f"{python}-{failure.name}")
        for python in PYTHONS
        for failure in failures.FAILURES
        if failure.only in ("", python)
    ],
)


@pytest.fixture(scope="session")
def secure() -> Iterator[SecureBroker]:
    broker = SecureBroker()
    yield broker
    broker.stop()


def _said(printed: list[str], word: str) -> list[str]:
    """Return what follows `word` in what a scenario printed."""
    (line,) = [line for line in printed if line.startswith(f"@{word}")]
    return line.split()[1:]


@pythons
def test_publish_and_receive(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", secure.trusting())


@pythons
def test_the_authority_as_bytes(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", {"ca": "@" + secure.path("ca.der")})


def test_the_authority_as_pem(secure: SecureBroker) -> None:
    """The interpreter reads PEM here: the unix port of MicroPython does not."""
    secure.run("cpython", "every_qos", {"ca": secure.path("ca.pem")})
    secure.run("cpython", "every_qos", {"ca": "@" + secure.path("ca.pem")})


@pythons
@pytest.mark.parametrize("scenario", ["large_from_a_buffer", "large_from_the_ring"])
def test_large_messages(python: str, scenario: str, secure: SecureBroker) -> None:
    secure.run(python, scenario, secure.trusting())


@pythons
def test_by_name(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", secure.trusting(), host="localhost")


@pythons
def test_another_name_than_the_host(python: str, secure: SecureBroker) -> None:
    tls = secure.trusting(server_hostname="broker.example")
    secure.run(python, "every_qos", tls, listener="named")


@pythons
@pytest.mark.parametrize("at", ["", "@"], ids=["path", "bytes"])
def test_a_client_certificate(python: str, at: str, secure: SecureBroker) -> None:
    own = {"cert": at + secure.path("client.der"), "key": at + secure.path("client.key.der")}
    secure.run(python, "every_qos", secure.trusting(**own), listener="mutual")


@pythons
@pytest.mark.parametrize("listener", ["broker", "expired", "future", "named"])
def test_a_pin_needs_no_clock_and_no_name(
    python: str, listener: str, secure: SecureBroker
) -> None:
    secure.run(python, "every_qos", {"pin": secure.pins[listener]}, listener=listener)


@pythons
def test_a_certificate_that_signs_itself(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", {"ca": secure.path("own.der")}, listener="own")


@pythons
def test_one_of_several_pins(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", {"pin": [secure.pins["ca"], secure.pins["broker"]]})


@pythons
def test_authority_and_pin_must_both_be_right(python: str, secure: SecureBroker) -> None:
    right = secure.trusting(pin=secure.pins["broker"])
    secure.run(python, "every_qos", right)
    for wrong, says in (
        ({**right, "pin": secure.pins["ca"]}, "is not in pin"),
        ({**right, "ca": secure.path("other.der")}, "unknown authority"),
    ):
        said = " ".join(_said(secure.run(python, "fails", wrong), "failed"))
        assert said.startswith("tls ")
        assert says in said


@pythons
def test_insecure(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", {"insecure": True}, listener="expired")


@pytest.mark.parametrize("python", ["cpython"])
def test_tls_1_3(python: str, secure: SecureBroker) -> None:
    secure.run(python, "every_qos", secure.trusting(), listener="modern")


@pythons
def test_reconnects(python: str, secure: SecureBroker) -> None:
    secure.run(python, "reconnects", secure.trusting())
    secure.run(python, "lets_go_of_certificates", {"ca": "@" + secure.path("ca.der")})


@mistakes
def test_what_is_wrong_is_said(
    python: str, failure: failures.Failure, secure: SecureBroker
) -> None:
    kind, detail = failures.said(secure, python, failure)
    assert (kind, failure.says in detail) == (failure.kind, True), detail
    assert detail.startswith(f"TLS 127.0.0.1:{secure.ports[failure.listener]}: ")


# Listeners of brokers that close on a mistake: the network may have done that, so connect() looks
# twice, each time after a poll, in which a fast broker may have closed two connections.
CLOSING = ("plain", "mutual", "older")


@mistakes
def test_connect_reports_a_mistake_at_once(
    python: str, failure: failures.Failure, secure: SecureBroker
) -> None:
    tls = failures.arguments(secure, failure.tls)
    printed = secure.run(python, "connect_raises", tls, listener=failure.listener)
    tries, kind, *detail = _said(printed, "raised")
    assert (kind, failure.says in " ".join(detail)) == (failure.kind, True), detail
    assert 1 <= int(tries) <= (4 if failure.listener in CLOSING else 1)


@pythons
@pytest.mark.parametrize("way", ["up", "down"])
def test_connect_goes_on_after_a_cut(python: str, way: str, secure: SecureBroker) -> None:
    """One handshake that is cut, before or after the broker's certificate, proves nothing."""

    def rules(count: int) -> Rules:
        if count:
            return Rules()
        cut = Way(limit=300, then="cut")
        return Rules(up=cut) if way == "up" else Rules(down=cut)

    with Proxy("127.0.0.1", secure.ports["broker"], rules) as proxy:
        printed = secure.run(python, "connect_after_losses", secure.trusting(), port=proxy.port)
    assert _said(printed, "losses") == ["1"]


@pythons
def test_a_broker_that_is_not_trusted_gets_no_connect(python: str, secure: SecureBroker) -> None:
    """CONNECT has the password.

    mosquitto logs whoever connects, and here only the last one.
    """
    for tls in ({"ca": secure.path("other.der")}, {"pin": secure.pins["ca"]}):
        before = secure.broker.log().count("New client connected")
        secure.run(python, "fails", tls)
        secure.run(python, "reconnects", secure.trusting(), option="1")
        assert secure.broker.log().count("New client connected") == before + 1


@pythons
def test_the_date_is_that_of_the_clock(python: str, secure: SecureBroker) -> None:
    before = datetime.datetime.now(datetime.timezone.utc).date()
    printed = secure.run(python, "fails", secure.trusting(), listener="future")
    after = datetime.datetime.now(datetime.timezone.utc).date()
    assert any(str(day) in " ".join(printed) for day in (before, after))


@pythons
def test_the_handshake_waits_for_the_broker(python: str, secure: SecureBroker) -> None:
    """poll(100) waits, and does not look for something to do all the time."""
    delayed = Rules(Way(delay=0.25), Way(delay=0.25))
    with Proxy("127.0.0.1", secure.ports["broker"], lambda count: delayed) as proxy:
        printed = secure.run(python, "turns", secure.trusting(), port=proxy.port)
    turns, ms = map(int, _said(printed, "turns"))
    assert ms >= 1000
    assert turns <= ms // 100 + 15


@pythons
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_handshake_that_is_cut(python: str, way: str, secure: SecureBroker) -> None:
    """After each number of bytes; on MicroPython, which takes longer, after each third."""
    at = range(0, HANDSHAKE, 1 if python == "cpython" else 3)

    def rules(count: int) -> Rules:
        if count >= len(at):
            return Rules()
        cut = Way(limit=at[count], then="cut" if count % 2 else "reset")
        return Rules(up=cut) if way == "up" else Rules(down=cut)

    with Proxy("127.0.0.1", secure.ports["broker"], rules) as proxy:
        printed = secure.run(python, "through_cuts", secure.trusting(), port=proxy.port)
        losses, *kinds = _said(printed, "losses")
        assert int(losses) > 100
        assert set(kinds) <= {"tls", "closed"}


@pythons
def test_connections_that_are_cut_lose_nothing(python: str, secure: SecureBroker) -> None:
    count = 100

    def rules(number: int) -> Rules:
        if number >= 40:
            return Rules()
        return Rules(up=Way(limit=600 + 37 * number))

    with Proxy("127.0.0.1", secure.ports["broker"], rules) as proxy:
        tls = secure.trusting()
        printed = secure.run(python, "exactly_once", tls, port=proxy.port, option=str(count))
    assert int(_said(printed, "losses")[0]) > 5


@pythons
def test_byte_by_byte(python: str, secure: SecureBroker) -> None:
    trickle = Rules(Way(trickle=True), Way(trickle=True))
    with Proxy("127.0.0.1", secure.ports["broker"], lambda count: trickle) as proxy:
        secure.run(python, "every_qos", secure.trusting(), port=proxy.port)


def _on_device(program: str, heap: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [*interpreter_command("micropython", heap), str(HERE / program), *arguments],
        env=interpreter.environment(on_device.made()),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines, done.stdout + done.stderr
    assert lines[-1][0] == "SEEN", done.stdout + done.stderr
    return lines[-1][1:]


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


def _reconnects(secure: SecureBroker, reserve: bool, when: str) -> list[str]:
    return _on_device("full_heap.py", "192k", *_where(secure), str(reserve), when)


@pytest.mark.parametrize("when", ["online", "offline"])
def test_the_reserve_lets_it_reconnect_in_a_full_heap(when: str, secure: SecureBroker) -> None:
    assert _reconnects(secure, True, when) == ["100"]


def test_without_the_reserve_a_full_heap_is_said(secure: SecureBroker) -> None:
    connects, kind, *detail = _reconnects(secure, False, "offline")
    assert (connects, kind) == ("1", "resource")
    assert "no memory for TLS" in " ".join(detail)


PIN = "A" * 43 + "="


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "TLS needs ca"),
        ({"ca": b""}, "TLS needs ca"),
        ({"ca": 5}, "ca must be bytes or the path of a file, not 5"),
        ({"ca": "ca.der", "cert": "cert.der"}, "cert and key must be given together"),
        ({"ca": "ca.der", "key": "key.der"}, "cert and key must be given together"),
        ({"pin": "abc"}, "pin must be a SHA-256"),
        ({"pin": b"abc"}, "pin must be a SHA-256"),
        ({"pin": (PIN, "?")}, "pin must be a SHA-256"),
        ({"pin": 5}, "pin must be bytes, str or a tuple of them, not 5"),
        ({"pin": PIN, "insecure": True}, "insecure must be False"),
        ({"ca": "ca.der", "server_hostname": b"x"}, "server_hostname must be str, not b'x'"),
        ({"pin": PIN, "reserve": 24501}, "reserve must be a bool or at least 24502 bytes"),
        ({"pin": PIN, "reserve": "all"}, "reserve must be a bool or at least 24502 bytes"),
    ],
)
def test_arguments(given: dict, says: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        TLS(**given)
    assert says in str(raised.value)


ALERT = -30592
CLOSED = -29312


@pytest.mark.parametrize(
    ("number", "certified", "kind", "says"),
    [
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
    ],
)
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
    with pytest.raises(TypeError, match="tls must be a TLS, not True"):
        Client(b"c", "localhost", tls=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tls must be None with a link"):
        Client(b"c", tls=TLS(pin=PIN), link=object())
