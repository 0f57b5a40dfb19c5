"""The messages of errors of streams and links and of arguments, and reprs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest

import flatmq
import peer
from flatmq import Client, MQTTError
from unit.fake_link import Bench, Clock, FakeLink, fake_clock
from unit.scripted_broker import fail

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
    assert (client.state, client.error.kind) == ("waiting", kind)
    detail = client.error.detail
    assert isinstance(detail, str)
    wanted = [what, type(error).__name__, *(str(arg) for arg in error.args)]
    assert [part for part in wanted if part not in detail] == [], detail
    assert detail in str(client.error) or repr(detail) in str(client.error)
    assert not bench.link.open


def raises(error: BaseException) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


def made(clock: Clock, **options) -> Bench:
    return Bench(clock, host=HOST, port=PORT, **options)


# Streams and links


@ids
@pytest.mark.parametrize("step", ["resolve", "connect", "stream"])
def test_an_error_while_connecting(step: str, error: Exception, clock: Clock) -> None:
    bench = made(clock)
    setattr(bench.link, step, raises(error))
    bench.client.start()
    while not bench.client.stats.losses:
        clock.now += 50
        bench.client.poll()
    if step == "resolve":
        named(bench, "lookup", error, "resource")
    else:
        named(bench, "connect", error)
    delattr(bench.link, step)
    bench.online()
    assert bench.client.error is None


@ids
def test_an_error_while_reading(error: Exception, clock: Clock) -> None:
    bench = made(clock).online()
    bench.stream.raises["read"] = error
    assert bench.client.poll() in (False, True)
    named(bench, "read", error)
    bench.online()


@ids
def test_an_error_while_writing(error: Exception, clock: Clock) -> None:
    bench = made(clock).online()
    bench.stream.raises["write"] = error
    bench.client.publish(b"t", b"x", 1)
    bench.client.flush()
    named(bench, "write", error)
    bench.online()
    bench.feed(peer.PINGRESP)  # which may be asked for first
    sent = [peer.take_apart(p) for p in bench.sent() if p.first >> 4 == 3]
    assert [p.payload for p in sent] == [b"x"]


@ids
def test_an_error_in_the_greeting(error: Exception, clock: Clock) -> None:
    """A TLS handshake goes on while CONNECT is written, and there a bad certificate is found."""
    bench = made(clock)
    bench.greet()
    fail(bench.stream, error)
    bench.drain()
    named(bench, "read", error)


@ids
def test_an_error_while_waiting(error: Exception, clock: Clock) -> None:
    bench = made(clock).online()
    bench.link.on_wait = [raises(error)]
    bench.client.poll(100)
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "closed")
    assert type(error).__name__ in bench.client.error.detail
    bench.online()


@ids
def test_an_error_while_closing_stops_nothing(error: Exception, clock: Clock) -> None:
    bench = made(clock).online()
    close = bench.link.close

    def closes_and_raises() -> None:
        close()
        raise error

    bench.link.close = closes_and_raises  # type: ignore[method-assign]
    bench.lose()
    bench.online()
    bench.client.disconnect()
    assert bench.client.state == "offline"


def test_an_error_while_disconnecting(clock: Clock) -> None:
    bench = made(clock).online()
    fail(bench.stream, ValueError("bad record"))
    assert bench.client.disconnect() is False
    assert bench.client.state == "offline"


def goes_on(bench: Bench) -> None:
    """The client gets online, if it is not, and settles what it has accepted."""
    client = bench.client
    if not client.connected:
        bench.online()
    assert client.publish(b"t", b"after it", 1)
    client.poll()
    for _ in range(6):
        answers = [peer.PINGRESP]
        for packet in bench.sent():
            if packet.first == 0x62:
                answers.append(peer.pubcomp(packet.pid))
            elif packet.first & 0xF6 == 0x32:
                answers.append(peer.puback(peer.take_apart(packet).pid))
            elif packet.first & 0xF6 == 0x34:
                answers.append(peer.pubrec(peer.take_apart(packet).pid))
        bench.feed(*answers)
    assert (client.connected, client.pending, client.count) == (True, 0, 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("step", ["read", "write", "wait"])
def test_an_interrupt_comes_out_of_poll_and_the_client_goes_on(
    step: str, error: type, clock: Clock
) -> None:
    bench = made(clock).online()
    if step == "wait":
        bench.link.on_wait = [raises(error())]
    else:
        bench.stream.raises[step] = error()
    if step == "write":
        bench.client.publish(b"t", b"x", 1)
    with pytest.raises(error):
        bench.client.poll(100)
    assert bench.client.connected == (step == "wait")
    goes_on(bench)


@pytest.mark.parametrize("step", ["resolve", "connect", "stream"])
def test_an_interrupt_while_connecting(step: str, clock: Clock) -> None:
    bench = made(clock)
    setattr(bench.link, step, raises(KeyboardInterrupt()))
    bench.client.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            clock.now += 50
            bench.client.poll()
    delattr(bench.link, step)
    goes_on(bench)


def test_an_interrupt_while_offline(clock: Clock) -> None:
    bench = made(clock)
    bench.link.on_wait = [raises(KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        bench.client.poll(100)
    goes_on(bench)


class CtrlC:
    """Comes at the line numbered `at` of those that these modules of the client run."""

    def __init__(self, *modules: str) -> None:
        self._files = {importlib.import_module(f"flatmq.{name}").__file__ for name in modules}
        self.at = 0
        self.lines = 0

    def _line(self, frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self._line

    def _call(self, frame: FrameType, *_: object) -> object:
        return self._line if frame.f_code.co_filename in self._files else None

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def poll_until(bench: Bench, ctrl_c: CtrlC) -> bool:
    """Poll until nothing comes in. Returns whether that was interrupted."""
    with contextlib.suppress(KeyboardInterrupt), ctrl_c:
        bench.drain()
        bench.client.poll(10)
        return False
    return True


def test_ctrl_c_does_not_start_a_client_that_has_disconnected(clock: Clock) -> None:
    ctrl_c = CtrlC("client")
    while True:
        ctrl_c.at += 1
        ctrl_c.lines = 0
        bench = made(clock).online()
        bench.client.disconnect()
        came = poll_until(bench, ctrl_c)
        bench.drain()
        assert bench.client.state == "offline"
        if not came:
            break
        goes_on(bench)
    assert ctrl_c.at > 10


@pytest.mark.parametrize(
    "modules", [("reader", "writer"), ("session",), ("connection", "client")], ids=" ".join
)
def test_ctrl_c_at_any_line(modules: tuple[str, ...], clock: Clock) -> None:
    """It comes between any two instructions."""
    ctrl_c = CtrlC(*modules)

    def life(at: int) -> bool:
        ctrl_c.at = at
        ctrl_c.lines = 0
        bench = made(clock)
        bench.client.subscribe(b"t", lambda message: None, 1)
        bench.client.start()
        came = poll_until(bench, ctrl_c)
        if not came:
            bench.stream.incoming.append(peer.connack(0))
            came = poll_until(bench, ctrl_c)
        ids = [bench.client.publish(b"t", b"before it", qos) or 0 for qos in (1, 0, 2, 0)]
        if not came:
            came = poll_until(bench, ctrl_c)
        if not came:
            bench.stream.incoming.append(
                peer.publish(b"t", b"in", 1, 7) + peer.puback(ids[0]) + peer.pubrec(ids[2])
            )
            came = poll_until(bench, ctrl_c)
        bench.drain()
        goes_on(bench)
        return came

    assert not life(0)
    for at in range(1, ctrl_c.lines + 1):
        assert life(at)


def test_the_end_of_a_stream_is_told_with_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = Client(b"unit", "127.0.0.1", port)
        client.start()
        while client.state != "greeting":
            client.poll(10)
        server.accept()[0].close()
        while client.error is None:
            client.poll(10)
    assert client.error.kind == "closed"
    for part in ("127.0.0.1", str(port)):
        assert part in client.error.detail, client.error.detail


def test_a_failed_lookup_is_told_with_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", raises(socket.gaierror(-2, "name not known")))
    client = Client(b"unit", HOST, PORT)
    with pytest.raises(MQTTError) as caught:
        client.connect(timeout_ms=200)
    assert caught.value.kind == "resource"
    for part in ("lookup", HOST, str(PORT), "-2", "name not known"):
        assert part in caught.value.detail, caught.value.detail


def test_without_host_and_port_none_are_made_up(clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.lose()
    assert "None" not in bench.client.error.detail
    assert "1883" not in bench.client.error.detail


def test_a_refused_connection_over_tcp() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        client = Client(b"unit", "127.0.0.1", port, retry_ms=1, retry_max_ms=1)
        with pytest.raises(MQTTError) as caught:
            client.connect(timeout_ms=300)
    assert caught.value.kind == "closed"
    for part in ("connect", "127.0.0.1", str(port), str(errno.ECONNREFUSED)):
        assert part in caught.value.detail, caught.value.detail


def test_the_password_is_in_no_error(clock: Clock) -> None:
    bench = made(clock, user=b"alice", password=b"s3cret")
    bench.greet()
    fail(bench.stream, ValueError("bad certificate"))
    bench.drain()
    assert "s3cret" not in repr(bench.client.error) + repr(bench.client)


# A stream that must read before it can write


class Handshake:
    """A link over a stream that takes bytes only after it has read some, like TLS.

    TLS does so in its handshake. Its socket is writable all the time.
    """

    def __init__(self) -> None:
        self.address = "an address"
        self.reads = self.writes = self.waits = 0
        self.until = 0.0  # when the peer answers
        self.written = bytearray()

    def resolve(self) -> None:
        """The address is known."""

    def connect(self) -> None:
        self.until = time.monotonic() + 0.5

    def stream(self) -> Handshake:
        return self

    @property
    def shaken(self) -> bool:
        """Return whether the peer has answered."""
        return time.monotonic() >= self.until

    def readinto(self, buf: memoryview) -> int | None:
        self.reads += 1
        if self.written:
            self.written.clear()
            buf[:4] = peer.connack()
            return 4
        return None

    def write(self, buf: bytes, off: int, n: int) -> int | None:
        self.writes += 1
        if not self.shaken:
            return None
        self.written += bytes(memoryview(buf)[off : off + n])
        return n

    def wait(self, ms: int, out: bool) -> None:
        self.waits += 1
        assert ms > 0
        # That bytes wait to be written is no reason to return: there is nothing to be done.
        if not self.written:
            time.sleep(min(ms / 1000, max(0.0, self.until - time.monotonic())))

    def close(self) -> None:
        self.written.clear()


def test_poll_does_not_spin_in_a_handshake() -> None:
    link = Handshake()
    client = Client(b"unit", link=link)
    client.publish(b"t", b"x", 1)
    client.start()
    polls = 0
    while not client.connected:
        client.poll(100)
        polls += 1
        assert polls < 30
    calls = (link.waits, link.reads, link.writes)
    assert max(calls) <= 3 * polls, f"{calls} waits, reads and writes in {polls} polls"


def test_one_poll_waits_once(clock: Clock) -> None:
    """While nothing can be read or written, poll(100) is one wait of 100 ms."""
    bench = Bench(clock).online()
    bench.stream.room = 0
    bench.client.publish(b"t", b"x", 1)
    bench.client.poll()
    reads, attempts, began = bench.stream.reads, bench.stream.attempts, clock.now
    bench.link.waits.clear()
    bench.client.poll(100)
    assert (bench.link.waits, clock.now - began) == ([(100, True)], 100)
    assert bench.stream.reads - reads <= 2
    assert bench.stream.attempts - attempts <= 2


# Arguments


def client(**options) -> Client:
    with fake_clock() as clock:
        return Client(**({"client_id": b"unit", "link": FakeLink(clock)} | options))


WRONG: list = [
    (lambda c: c.publish(b"t", 5), TypeError, "payload must be bytes or str, not int"),
    (lambda c: c.publish(b"t", 5, 1), TypeError, "payload must be bytes or str, not int"),
    (lambda c: c.publish(b"t", None), TypeError, "payload must be bytes or str, not NoneType"),
    (lambda c: c.publish(b"t", 1.5), TypeError, "payload must be bytes or str, not float"),
    (lambda c: c.publish(b"t", ["x"]), TypeError, "payload must be bytes or str, not list"),
    (lambda c: c.publish(5), TypeError, r"topic( name)? must be bytes or str, not int"),
    (lambda c: c.publish(None), TypeError, r"topic( name)? must be bytes or str, not NoneType"),
    (lambda c: c.publish(b"t", b"x", 3), ValueError, "qos must be 0 to 2, not 3"),
    (lambda c: c.publish(b"t", b"x", -1), ValueError, "qos must be 0 to 2, not -1"),
    (lambda c: c.publish(b"t", b"x", "1"), (TypeError, ValueError), "qos must be 0 to 2, not '1'"),
    (lambda c: c.publish(b"a/#"), ValueError, r"topic name b'a/#'.*wildcard"),
    (lambda c: c.publish(b""), ValueError, r"topic name"),
    (lambda c: c.publish(b"a\0"), ValueError, r"topic name b'a\\x00'"),
    (lambda c: c.publish(b"\xff"), ValueError, r"topic name b'\\xff'.*UTF-8"),
    (lambda c: c.publish_from(b"t", 5), TypeError, "source must be .*, not int"),
    (lambda c: c.publish_from(b"t", None), TypeError, "source must be .*, not NoneType"),
    (lambda c: c.publish_from(b"t", b"x", 2), ValueError, "qos must be 0 to 1, not 2"),
    (lambda c: c.subscribe(5, print), TypeError, "topic filter"),
    (lambda c: c.subscribe([b"a", 5], print), TypeError, "topic filter.* bytes or str, not int"),
    (lambda c: c.subscribe(b"a#", print), ValueError, r"topic filter b'a#'"),
    (lambda c: c.subscribe(b"a", print, 3), ValueError, "qos must be 0 to 2, not 3"),
    (lambda c: c.subscribe(b"a", None), (TypeError, ValueError), "handler must be .*, not None"),
    (lambda c: c.set_will(5), TypeError, r"will topic( name)? must be bytes or str, not int"),
    (lambda c: c.set_will(b"t", 5), TypeError, "will payload must be bytes or str, not int"),
    (lambda c: c.set_will(b"t", b"", 3), ValueError, "will qos must be 0 to 2, not 3"),
    (lambda c: c.set_credentials(5, b""), TypeError, "user must be bytes or str, not int"),
    (lambda c: c.set_credentials(b"", 5), TypeError, "password must be .*, not int"),
]


@pytest.mark.parametrize(
    ("call", "error", "text"), WRONG, ids=[f"{i} {row[2][:30]}" for i, row in enumerate(WRONG)]
)
def test_a_wrong_argument_is_named(call: Callable, error, text: str, clock: Clock) -> None:
    bench = Bench(clock).online()
    bench.sent()
    with pytest.raises(error, match=text):
        call(bench.client)
    assert bench.client.pending == 0
    bench.client.publish(b"t", b"after")
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"after"], "it leaves nothing behind"


OPTIONS: list = [
    ("port", "1883", "port must be 1 to 65535, not '1883'"),
    ("port", 0, "port must be 1 to 65535, not 0"),
    ("port", 65_536, "port must be 1 to 65535, not 65536"),
    ("keepalive", 65_536, "keepalive must be 0 to 65535, not 65536"),
    ("keepalive", "60", "keepalive must be 0 to 65535, not '60'"),
    ("keepalive", None, "keepalive must be 0 to 65535, not None"),
    ("inflight", 0, "inflight must be 1 to 255, not 0"),
    ("inflight", "8", "inflight must be 1 to 255, not '8'"),
    ("tx_size", "1024", "tx_size must be 16 to .*, not '1024'"),
    ("rx_size", 63, "rx_size must be 64 to .*, not 63"),
    ("timeout", 0, "timeout must be 1 to 65535, not 0"),
    ("retry_ms", 0, "retry_ms must be 1 to 60000, not 0"),
    ("subscriptions", 256, "subscriptions must be 0 to 255, not 256"),
    ("incoming", 0, "incoming must be 1 to 65535, not 0"),
    ("version", 5.5, "version must be .*, not 5.5"),
    ("give_up", -1, "give_up must be 0 to .*, not -1"),
    ("give_up", "5", "give_up must be 0 to .*, not '5'"),
    ("give_up", None, "give_up must be 0 to .*, not None"),
    ("max_qos", -1, "max_qos must be 0 to 2, not -1"),
    ("max_qos", 3, "max_qos must be 0 to 2, not 3"),
    ("client_id", 5, r"client_id must be bytes or str, not int"),
    ("host", 5, "host must be .*, not (int|5)"),
    ("user", 5, "user must be bytes or str, not int"),
    ("password", 5, "password must be .*, not int"),
]


@pytest.mark.parametrize(("name", "value", "text"), OPTIONS, ids=lambda v: str(v)[:24])
def test_a_wrong_option_is_named(name: str, value, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        if name in ("host", "port"):
            Client(**({"client_id": b"unit", "host": HOST} | {name: value}))
        else:
            client(**({"user": b"u"} if name == "password" else {}) | {name: value})


def test_a_packet_that_never_fits() -> None:
    with pytest.raises(ValueError, match=r"packet must be .*1024.*, not 1027"):
        client().publish(b"t", bytes(1021))


# At the prompt


def test_a_client_at_the_prompt(clock: Clock) -> None:
    shown = repr(Client(b"pico-1", HOST, PORT, user=b"u", password=b"s3cret"))
    assert all(part in shown for part in ("Client", "pico-1", HOST, "8883", "offline"))
    assert "s3cret" not in shown
    bench = Bench(clock, client_id=b"pico-1", user=b"u", password=b"s3cret")
    assert "offline" in repr(bench.client)
    bench.online()
    bench.client.publish(b"t", b"x", 1)
    assert "online" in repr(bench.client)
    assert "pending" in repr(bench.client)
    assert "1" in repr(bench.client).replace("pico-1", "")
    assert "s3cret" not in repr(bench.client)
    assert "object at" not in repr(bench.client)
    bench.lose()
    assert "closed" in repr(bench.client), "why it is not online"


def test_stats_at_the_prompt(clock: Clock) -> None:
    bench = Bench(clock).online()
    for _ in range(7):
        bench.feed(peer.publish(b"t", b"x"))
    shown = repr(bench.client.stats)
    names = "received unrouted skipped strays resent renewed connects losses dropped downgraded"
    for name in [*names.split(), "dup0"]:
        assert name in shown
        assert isinstance(getattr(bench.client.stats, name), int)
    assert "7" in shown


def test_a_message_at_the_prompt(clock: Clock) -> None:
    shown: list[str] = []
    bench = Bench(clock, on_message=lambda message: shown.append(repr(message)))
    bench.online()
    bench.feed(peer.publish(b"dev/1", b"hello", 1, 7, retain=True))
    bench.feed(peer.publish(b"dev/2", b"x" * 300))
    assert "dev/1" in shown[0]
    assert "hello" in shown[0]
    assert "dev/2" in shown[1]
    assert len(shown[1]) < 200, "a long one is not shown whole"
    assert all("object at" not in text for text in shown)


def test_a_subscription_at_the_prompt(clock: Clock) -> None:
    """The result of `subscribe` is printed at the prompt where nobody keeps it."""
    bench = Bench(clock)
    assert "dev/#" in repr(bench.client.subscribe(b"dev/#", print))


def test_an_error_at_the_prompt(clock: Clock) -> None:
    bench = made(clock)
    bench.greet()
    bench.feed(peer.connack(5))
    assert (bench.client.error.kind, bench.client.error.code) == ("refused", 5)
    for part in ("refused", "5"):
        assert part in str(bench.client.error)


def test_the_error_class_is_there_when_it_is_asked_for() -> None:
    assert flatmq.MQTTError is MQTTError
    assert issubclass(MQTTError, Exception)
    with fake_clock() as clock, pytest.raises(flatmq.MQTTError):
        Bench(clock).client.connect(timeout_ms=100)
