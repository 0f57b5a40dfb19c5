"""Opening a WebSocket: what is asked, and what the application learns of each failure."""

import errno
import itertools
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatmq import Client, MQTTError
from flatmq.stream_websocket import WebSocket
from hostile.framed import Below
from websocket.far_end import Inner, answer, cut, frame

Reply = Callable[[bytes], bytes]


def _fields(request: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    first, *lines = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
    return first, dict(line.split(b": ", 1) for line in lines)


def asked(*arguments: object, **options: object) -> tuple[bytes, dict[bytes, bytes]]:
    """The request line and the fields that a link of these arguments sends."""
    inner = Inner()
    if options.pop("tls", False):
        options["tls"] = Below(inner)
    else:
        options["link"] = inner
    link = WebSocket(*arguments, **options)  # type: ignore[arg-type]
    link.connect()
    assert link.stream() is link
    return _fields(inner.request)


def test_the_request_is_that_of_the_standard() -> None:
    first, fields = asked("broker", 9001, "/mqtt?token=x")
    assert first == b"GET /mqtt?token=x HTTP/1.1"
    key = fields.pop(b"Sec-WebSocket-Key")
    assert len(key) == 24
    assert fields == {
        b"Host": b"broker:9001",
        b"Upgrade": b"websocket",
        b"Connection": b"Upgrade",
        b"Sec-WebSocket-Version": b"13",
        b"Sec-WebSocket-Protocol": b"mqtt",
    }


def test_each_request_has_a_key_of_its_own() -> None:
    keys = {asked("broker")[1][b"Sec-WebSocket-Key"] for _ in range(5)}
    assert len(keys) == 5


@pytest.mark.parametrize(("host", "port", "tls", "wanted"), [
    ("broker", None, False, b"broker"),
    ("broker", 80, False, b"broker"),
    ("broker", 443, False, b"broker:443"),
    ("broker", None, True, b"broker"),
    ("broker", 80, True, b"broker:80"),
    ("2001:db8::1", 9001, False, b"[2001:db8::1]:9001"),
])  # fmt: skip
def test_the_host_has_a_port_unless_it_is_the_default(
    host: str, port: int | None, tls: bool, wanted: bytes
) -> None:
    assert asked(host, port, tls=tls)[1][b"Host"] == wanted


@given(st.lists(st.integers(1, 60), max_size=60), st.lists(st.integers(0, 40), max_size=40))
def test_the_answer_may_be_cut_anywhere(chunks: list, rooms: list) -> None:
    """Nothing of the first frame behind it is lost, and no step waits."""
    inner = Inner(reply=None)
    room = iter(rooms)
    inner.takes = lambda n: next(room, n)
    link = WebSocket("broker", link=inner)
    link.connect()
    steps = 0
    while not inner.request:
        assert link.stream() is None
        steps += 1
    assert steps <= len(rooms) + 1
    for chunk in cut(answer(inner.request) + frame(2, b"first"), iter(chunks)):
        link.stream() if link._upgrade else None
        inner.incoming.append(chunk)
    if link._upgrade:
        assert link.stream() is link
    buf = bytearray(16)
    got = b""
    while len(got) < 5:
        got += buf[: link.readinto(memoryview(buf)) or 0]
    assert got == b"first"


def test_it_waits_for_room_only_while_the_request_has_not_left() -> None:
    inner = Inner(reply=None)
    inner.takes = lambda n: 20
    link = WebSocket("broker", link=inner)
    link.connect()
    link.wait(1, True)
    inner.takes = lambda n: None
    assert link.stream() is None
    link.wait(1, True)
    inner.takes = lambda n: n
    assert link.stream() is None
    link.wait(1, True)
    assert inner.waits == [True, True, False]


def status(line: bytes) -> Reply:
    return lambda request: line + b"\r\nContent-Length: 0\r\n\r\n"


def changed(**fields: bytes | None) -> Reply:
    return lambda request: answer(request, **fields)


FAILURES: dict[str, tuple[Reply, str]] = {
    "404": (status(b"HTTP/1.1 404 Not Found"), "answered HTTP/1.1 404 Not Found: check the path"),
    "200": (status(b"HTTP/1.0 200 OK"), "answered HTTP/1.0 200 OK: check the path '/mqtt'"),
    "400": (
        status(b"HTTP/1.1 400 \xff The plain HTTP request was sent to HTTPS port"),
        r"answered HTTP/1.1 400 \xff The plain HTTP request was sent to HTTPS port",
    ),
    "echo": (status(b"HTTP/1.1 404 no /mqtt?token=s3cret"), "answered HTTP/1.1 404 no /mqtt: ch"),
    "an empty line": (lambda request: b"HTTP\n", "answered HTTP: check the path"),
    "TLS": (lambda request: b"\x15\x03\x01\x00\x02\x02\x46", "is not HTTP: check that this port"),
    "nothing": (lambda request: b"", "closed before the WebSocket was open: check that this port"),
    "half": (lambda request: answer(request)[:-2], "closed before the WebSocket was open"),
    "no end": (lambda request: b"HTTP/1.1 101 x\r\n" + b"x" * 5000, "has more than 4096 bytes"),
    "accept": (changed(Sec_WebSocket_Accept=b"nope"), "wrong Sec-WebSocket-Accept: a proxy or"),
    "no accept": (changed(Sec_WebSocket_Accept=None), "wrong Sec-WebSocket-Accept"),
    "no sub-protocol": (changed(Sec_WebSocket_Protocol=None), "sub-protocol mqtt not accepted"),
    "other": (changed(Sec_WebSocket_Protocol=b"chat"), "check that MQTT is served at '/mqtt'"),
    "no upgrade": (changed(Upgrade=None), "101 without Upgrade: websocket"),
    "no connection": (changed(Connection=b"close"), "101 without Upgrade: websocket"),
    "extension": (changed(Sec_WebSocket_Extensions=b"permessage-deflate"), "an extension"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_application_hears_why_and_the_client_tries_again(name: str) -> None:
    reply, text = FAILURES[name]
    inner = Inner(reply)
    inner.ended = True
    link = WebSocket("broker", 9001, "/mqtt?token=s3cret", link=inner)
    client = Client(b"c", link=link, retry_ms=1, retry_max_ms=1)
    client.start()
    for _ in range(10):
        client.poll()
        if client.error:
            break
    assert client.error is not None
    assert client.error.kind == "closed"
    assert str(client.error.detail).startswith("connect broker:9001: ")
    assert text in str(client.error.detail)
    assert "s3cret" not in f"{client.error} {client!r}"
    assert inner.closed
    inner.mend()
    now = itertools.count(client.due + 1)
    with mock.patch("flatmq.port.ticks_ms", lambda: next(now)):
        for _ in range(10):
            client.poll()
        assert inner.sent().payload[0] == 0x10  # CONNECT


class _Reset(Inner):
    """The peer resets the connection when it has the request."""

    def readinto(self, buf: memoryview) -> int | None:
        raise OSError(errno.ECONNRESET, "reset")


class _Knowing(_Reset):
    def why(self, error: object) -> MQTTError:
        return MQTTError("tls", f"known: {type(error).__name__}")


def test_a_reset_says_what_to_look_at() -> None:
    link = WebSocket("broker", link=_Reset())
    link.connect()
    with pytest.raises(OSError, match="closed before the WebSocket was open") as failure:
        link.stream()
    assert link.why(failure.value) is None


def test_what_tls_knows_of_an_error_is_kept() -> None:
    link = WebSocket("broker", tls=Below(_Knowing()))
    link.connect()
    with pytest.raises(ConnectionResetError) as failure:
        link.stream()
    assert link.why(failure.value).detail == "known: ConnectionResetError"
    assert link.why(0).detail == "known: int"
    assert link.why(OSError("answered 404")) is None


def test_fields_in_other_cases_and_lists_are_understood() -> None:
    def reply(request: bytes) -> bytes:
        text = answer(request, Upgrade=b"WebSocket", Connection=b"keep-alive, upgrade")
        return text.replace(b"Sec-WebSocket-", b"sec-websocket-").replace(b": ", b":\t")

    inner = Inner(reply)
    link = WebSocket("broker", link=inner)
    link.connect()
    assert link.stream() is link


@pytest.mark.parametrize(("arguments", "text"), [
    (("",), "host must be a name or an address, not ''"),
    (("a b",), "host must be a name or an address, not 'a b'"),
    (("a\r\nX: y",), "host must be"),
    (("broker", 0), "port must be 1 to 65535, not 0"),
    (("broker", 65536), "port must be 1 to 65535, not 65536"),
    (("broker", 80, "mqtt"), "path must begin with / and be ASCII without spaces, not 'mqtt'"),
    (("broker", 80, "mqtt?token"), "ASCII without spaces, not 'mqtt'$"),
    (("broker", 80, "/a b"), "path must begin with /"),
    (("broker", 80, "/ä"), "path must begin with /"),
    (("broker", 80, "/\r\nX: y"), "path must begin with /"),
])  # fmt: skip
def test_arguments_are_checked(arguments: tuple, text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("/", "[/]")):
        WebSocket(*arguments)
    with pytest.raises(ValueError, match="tls must be None with a link"):
        WebSocket("broker", tls=Below(Inner()), link=Inner())


def test_the_name_is_looked_up_again_when_the_client_asks_for_it() -> None:
    inner = Inner()
    link = WebSocket("broker", link=inner)
    assert link.address is None
    link.resolve()
    assert link.address == "there"
    inner.address = "old"
    link.address = None
    link.resolve()
    assert link.address == "there"
