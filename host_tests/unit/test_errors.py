"""Errors of streams and links as the client reports them, and what stands at the prompt."""

import errno
import socket
from collections.abc import Callable
from functools import partial

import pytest

import peer
from brokers.scripted import fail
from flatmq import Client, MQTTError
from unit.both_versions import VersionBench
from unit.fake_link import Bench, raises

HOST, PORT = "broker.example", 8883
ERRORS = [
    ValueError("bad certificate"),
    OSError(errno.ECONNRESET, "reset by peer"),
    OSError(-0x2700),  # what a TLS library returns, in an OSError without text
    RuntimeError("no memory for a record"),
    MemoryError("memory allocation failed"),
]
ids = pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__ + str(e)[:5])


def named(bench: Bench, what: str, error: Exception, kind: str = "closed") -> None:
    """The client waits for its next try, and says what was done and what was raised."""
    client = bench.client
    kind = "resource" if isinstance(error, MemoryError) else kind
    assert (client.state, client.error.kind) == ("waiting", kind)
    detail = client.error.detail
    assert isinstance(detail, str)
    wanted = [what, type(error).__name__, *(str(arg) for arg in error.args)]
    assert [part for part in wanted if part not in detail] == [], detail
    assert detail in str(client.error) or repr(detail) in str(client.error)
    assert not bench.link.open


@pytest.fixture
def made(make: Callable) -> Callable[..., VersionBench]:
    """A function that makes a client that knows its host and port."""
    return partial(make, host=HOST, port=PORT)


# Streams and links


@ids
@pytest.mark.parametrize("step", ["resolve", "connect", "stream"])
def test_an_error_while_connecting(step: str, error: Exception, made: Callable) -> None:
    bench = made()
    setattr(bench.link, step, raises(error))
    bench.client.start()
    while not bench.client.stats.losses:
        bench.clock.now += 50
        bench.client.poll()
    if step == "resolve":
        named(bench, "lookup", error, "resource")
    else:
        named(bench, "connect", error)
    delattr(bench.link, step)
    bench.online()
    assert bench.client.error is None


@ids
@pytest.mark.parametrize("step", ["greeting", "read", "write", "wait"])
def test_an_error_of_a_connection(step: str, error: Exception, made: Callable) -> None:
    """In the greeting: a TLS handshake goes on while CONNECT is written."""
    bench = made()
    if step == "greeting":
        bench.greet()
        fail(bench.stream, error)
    else:
        bench.online()
    if step == "wait":
        bench.link.on_wait = [raises(error)]
    elif step != "greeting":
        bench.stream.raises[step] = error
    if step == "write":
        bench.client.publish(b"t", b"x", 1)
    bench.client.poll(100)
    bench.drain()
    if step == "wait":
        kind = "resource" if isinstance(error, MemoryError) else "closed"
        assert (bench.client.state, bench.client.error.kind) == ("waiting", kind)
        assert type(error).__name__ in bench.client.error.detail
    else:
        named(bench, "read" if step == "greeting" else step, error)
    bench.online()
    bench.feed(peer.PINGRESP)  # which may be asked for first
    sent = [peer.take_apart(p) for p in bench.sent() if p.first >> 4 == 3]
    assert [p.payload for p in sent] == [b"x"] * (step == "write")


@ids
def test_an_error_while_closing_stops_nothing(error: Exception, made: Callable) -> None:
    bench = made().online()
    close = bench.link.close

    def closes_and_raises() -> None:
        close()
        raise error

    bench.link.close = closes_and_raises  # type: ignore[method-assign]
    bench.lose()
    bench.online()
    bench.client.disconnect()
    assert bench.client.state == "offline"


@pytest.mark.parametrize("listens", [True, False])
def test_an_error_of_tcp_names_the_peer(listens: bool) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        port = server.getsockname()[1]
        client = Client(b"unit", "127.0.0.1", port, retry_ms=1, retry_max_ms=1)
        client.start()
        while listens and client.state != "greeting":
            client.poll(10)
        if listens:
            server.accept()[0].close()
        while client.error is None:
            client.poll(10)
    assert client.error.kind == "closed"
    for part in ("127.0.0.1", str(port), "" if listens else "Connection refused"):
        assert part in client.error.detail, client.error.detail


def test_a_failed_lookup_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", raises(socket.gaierror(-2, "name not known")))
    client = Client(b"unit", HOST, PORT)
    with pytest.raises(MQTTError) as caught:
        client.connect(timeout_ms=200)
    assert caught.value.kind == "resource"
    for part in ("lookup", HOST, str(PORT), "-2", "name not known"):
        assert part in caught.value.detail, caught.value.detail


# At the prompt


def test_a_client_at_the_prompt(make: Callable) -> None:
    secret = {"client_id": b"pico-1", "user": b"u", "password": b"s3cret"}
    shown = repr(Client(host=HOST, port=PORT, **secret))
    assert all(part in shown for part in ("Client", "pico-1", HOST, "8883", "offline"))
    bench = make(**secret)
    shown += repr(bench.client)
    bench.online()
    bench.client.publish(b"t", b"x", 1)
    online = repr(bench.client)
    assert "online" in online and "pending" in online
    assert "1" in online.replace("pico-1", "")
    bench.lose()
    lost = repr(bench.client) + repr(bench.client.error)
    assert "closed" in lost, "why it is not online"
    assert "None" not in bench.client.error.detail, "there is no host, and none is made up"
    assert not any(word in shown + online + lost for word in ("s3cret", "object at"))


def test_what_a_session_gives_at_the_prompt(make: Callable) -> None:
    shown: list[str] = []
    bench = make(on_message=lambda message: shown.append(repr(message)))
    assert "dev/#" in repr(bench.client.subscribe(b"dev/#", print))
    bench.client.unsubscribe(b"dev/#")
    bench.online()
    bench.feed(peer.publish(b"dev/1", b"hello", 1, 7, retain=True))
    bench.feed(peer.publish(b"dev/2", b"x" * 300))
    bench.feed(peer.publish(b"dev/3", b"y" * 32))
    assert "dev/1" in shown[0] and "hello" in shown[0]
    assert "dev/2" in shown[1]
    assert len(shown[1]) < 200 and "..." in shown[1], "a long one is not shown whole"
    assert "y" * 32 in shown[2] and "..." not in shown[2]
    assert all("object at" not in text for text in shown)
    stats = repr(bench.client.stats)
    names = "received unrouted skipped strays resent renewed connects losses dropped downgraded"
    for name in [*names.split(), "dup0"]:
        assert name in stats
        assert isinstance(getattr(bench.client.stats, name), int)
    assert "received=3" in stats
