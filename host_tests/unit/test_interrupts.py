"""Ctrl-C at any line of the client, and short memory: it goes on, and loses nothing."""

import builtins
import contextlib
import errno
import gc
import importlib
import sys
from collections.abc import Callable
from types import FrameType, ModuleType

import pytest

import peer
import sizes
from flatmq import methods, subs
from flatmq.properties import Properties
from flatmq.rare import qos2, strays
from flatmq.v5 import fallback
from packets import build
from packets.properties import Id
from unit.both_versions import VersionBench
from unit.fake_link import Bench, Clock, raises
from v5.clients5 import Bench5


def settle(bench: VersionBench) -> None:
    """Answer what the client sends, as a broker does."""
    for _ in range(30):
        bench.client.poll()
        answers = [peer.PINGRESP]
        for packet in bench.sent():
            if packet.first == 0x62:
                answers.append(peer.pubcomp(packet.pid))
            elif packet.first == 0x82:
                answers.append(peer.suback(packet.pid, 1))
            elif packet.first & 0xF6 == 0x32:
                answers.append(peer.puback(peer.take_apart(packet).pid))
            elif packet.first & 0xF6 == 0x34:
                answers.append(peer.pubrec(peer.take_apart(packet).pid))
        bench.feed(*answers)
        if not bench.client.pending and not answers[1:]:
            break


def goes_on(bench: VersionBench, connack: bytes = b"") -> None:
    """The client gets online, if it is not, and settles what it has accepted."""
    client = bench.client
    if not client.connected:
        bench.greet()
        bench.feed_bytes(connack or bench.wire(peer.connack()))
    settle(bench)
    assert client.publish(b"t", b"after it", 1)
    if connack:
        assert client.publish(b"t", b"none is left", 1) is None  # Receive Maximum is 1
    settle(bench)
    assert (client.connected, client.pending, bench.kept) == (True, 0, 0), repr(client)


@pytest.mark.parametrize("step", ["resolve", "connect", "stream", "offline"])
def test_an_interrupt_while_not_online(step: str, make: Callable) -> None:
    bench = make()
    if step == "offline":
        bench.link.on_wait = [raises(KeyboardInterrupt())]
        with pytest.raises(KeyboardInterrupt):
            bench.client.poll(100)
    else:
        setattr(bench.link, step, raises(KeyboardInterrupt()))
        bench.client.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                bench.clock.now += 50
                bench.client.poll()
        delattr(bench.link, step)
    goes_on(bench)


class CtrlC:
    """Comes at the line numbered `at` of those that these modules of the client run."""

    def __init__(self, *modules: str) -> None:
        names = [name if name == "flatmq" else f"flatmq.{name}" for name in modules]
        self._files = {importlib.import_module(name).__file__ for name in names}
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


def at_each_line(life: Callable[[CtrlC], bool], *modules: str) -> None:
    """Live once for each line of the modules that runs, with Ctrl-C there; a sample of them."""
    life(CtrlC(*modules))  # what runs once in a process has run
    ctrl_c = CtrlC(*modules)
    missed = []
    gc.disable()  # else a client of an earlier life may end in the lines of this one
    try:
        assert not life(ctrl_c)
        lines = ctrl_c.lines
        assert lines > 5
        for ctrl_c.at in sizes.sample(range(1, lines + 1), 150):
            ctrl_c.lines = 0
            if not life(ctrl_c):
                missed.append(ctrl_c.at)
    finally:
        gc.enable()
    assert missed == []


def test_ctrl_c_does_not_start_a_client_that_has_disconnected(
    version: int, make: Callable
) -> None:
    ctrl_c = CtrlC("flatmq")
    while True:
        ctrl_c.at += 1
        ctrl_c.lines = 0
        bench = make().online()
        bench.client.disconnect()
        came = poll_until(bench, ctrl_c)
        bench.drain()
        assert bench.client.state == "offline"
        if not came:
            break
        goes_on(bench)
    assert ctrl_c.at > 3


MODULES = ["engine", "flatmq message v5", "dial subs rare.qos2"]


@pytest.mark.parametrize("part", range(3))
def test_ctrl_c_at_any_line(part: int, make: Callable) -> None:
    """It comes between any two instructions, while a client connects, publishes and receives."""

    def life(ctrl_c: CtrlC) -> bool:
        bench = make()
        bench.client.subscribe(b"t", lambda message: None, 1)
        bench.client.start()
        came = poll_until(bench, ctrl_c)
        if not came:
            bench.arrives(peer.connack(0))
            came = poll_until(bench, ctrl_c)
        ids = [bench.client.publish(b"t", b"before it", qos) or 0 for qos in (1, 0, 2, 0)]
        if not came:
            came = poll_until(bench, ctrl_c)
        if not came:
            bench.arrives(
                peer.publish(b"t", b"in", 1, 7), peer.puback(ids[0]), peer.pubrec(ids[2])
            )
            came = poll_until(bench, ctrl_c)
        bench.drain()
        goes_on(bench)
        return came

    at_each_line(life, *MODULES[part].split())


LIMITS = [(Id.RECEIVE_MAXIMUM, 1), (Id.TOPIC_ALIAS_MAXIMUM, 5), (Id.MAXIMUM_PACKET_SIZE, 500)]
MORE = Properties(content_type="x")


@pytest.mark.parametrize("modules", ["v5.packets v5.acks", "v5.carry v5.walk", "v5.flow"])
def test_ctrl_c_at_any_line_of_mqtt_5(modules: str, clock: Clock) -> None:
    """The broker limits what is in flight, on the next connection too."""
    connack = build.connack(0, 0, LIMITS)

    def life(ctrl_c: CtrlC) -> bool:
        bench = VersionBench(clock, 5)
        client = bench.client
        client.subscribe(b"t", lambda m: m.properties.get(3), 1)
        ids = [client.publish(b"t", b"before", qos, properties=MORE) or 0 for qos in (1, 0, 2, 1)]
        client.start()
        came = poll_until(bench, ctrl_c)
        alias = client.alias(b"aliased")
        for packet in (
            connack,
            build.publish(b"t", b"in", 1, 7, [(Id.CONTENT_TYPE, b"x")]),
            build.publish(b"t", b"in", 0, 0, [(Id.SUBSCRIPTION_IDENTIFIER, 1)]),
            build.ack("PUBACK", ids[0], 0x87, [(Id.REASON_STRING, b"no")]),
            build.ack("PUBREC", ids[2]),
            build.ending("DISCONNECT", 0x8B),
        ):
            if not came and (client.connected or client.state == "greeting"):
                alias.publish(b"x")
                bench.stream.incoming.append(packet)
                came = poll_until(bench, ctrl_c)
        bench.drain()
        if bench.link.made:
            bench.stream.incoming.clear()
        goes_on(bench, connack)
        return came

    at_each_line(life, *modules.split())


def test_ctrl_c_at_any_line_of_the_fallback(clock: Clock) -> None:
    sent = []

    def life(ctrl_c: CtrlC) -> bool:
        bench = Bench5(clock, version=None)
        bench.client.publish(b"t", b"before", 1, properties=MORE)
        bench.greet()
        bench.stream.incoming.append(peer.connack(1))
        came = poll_until(bench, ctrl_c)
        bench.online().client.poll()
        sent.extend(p.payload for p in bench.published())
        return came

    at_each_line(life, "v5.fallback")
    assert set(sent) == {b"before"}


# Memory


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules of the client that cannot be loaded while this is a set with their names."""
    real = __import__
    missing: set[str] = set()

    def load(name, globals=None, locals=None, fromlist=(), level=0):
        if name.rpartition(".")[2] in missing and (level or name.startswith("flatmq.")):
            raise MemoryError(f"memory allocation failed for {name}")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr("builtins.__import__", load)
    names = "show dial subs alone reasons v5.flow v5.reasons v5.walk rare."
    on_demand = tuple(f"flatmq.{name}" for name in names.split())
    for name in [name for name in sys.modules if name.startswith(on_demand)]:
        monkeypatch.delitem(sys.modules, name)
    return missing


def test_a_client_that_lets_go_waits_for_memory_and_loses_nothing(
    short: set[str], make: Callable
) -> None:
    """With `release` a loss takes memory, and without memory it is tried again."""
    bench = make(clean_session=False, release=True)
    subscription = bench.client.subscribe(b"t", lambda message: None, 1)
    bench.online()
    bench.feed(peer.suback(bench.sent()[-1].pid, 1))
    bench.pass_time(11_000)
    assert (bench.client.subs, subscription.granted) == (None, b"\1")
    pid = bench.client.publish(b"t", b"kept", 1)
    bench.client.poll()
    bench.sent()
    short |= {"dial", "subs"}
    bench.stream.raises["read"] = OSError(errno.EHOSTUNREACH, "read")
    bench.pass_time(2_000)
    assert (bench.client.connected, bench.client.error.kind) == (False, "resource")
    assert bench.client.publish(b"t", b"meanwhile", 1)
    short.clear()
    bench.online()  # the broker has forgotten the session
    subscribed, *again = bench.sent()
    kept = peer.take_apart(again[0])
    assert (kept.pid, kept.payload) == (pid, b"kept")
    bench.feed(peer.suback(subscribed.pid, 1))
    assert (subscribed.first, bench.client.pending) == (0x82, 2)


@pytest.mark.parametrize("modules", [{"connack"}, {"walk"}, {"flow"}])
def test_connack_of_mqtt_5_is_handled_once_there_is_memory(
    modules: set[str], clock: Clock, short: set[str]
) -> None:
    bench = VersionBench(clock, 5)
    pid, _ = [bench.client.publish(b"t", text, 1) for text in (b"kept", b"later")]
    bench.client.unanswered = 0  # as with version=None: memory says nothing about the version
    bench.greet()
    short |= modules
    for _ in range(3):
        bench.feed_bytes(build.connack(0, 0, LIMITS))
        assert (bench.client.connected, bench.client.error.kind) == (False, "resource")
        bench.pass_time(100_000)
        bench.greet()
    short.clear()
    bench.feed_bytes(build.connack(0, 0, LIMITS))
    assert (bench.client.connected, bench.client.level) == (True, 5)
    assert [(p.payload, p.pid) for p in bench.published()] == [(b"kept", pid)]


def _sent(bench: Bench5) -> list[tuple[bytes, int, int]]:
    bench.drain()
    return [(p.payload, p.pid, p.dup) for p in bench.packets() if p.name == "PUBLISH"]


@pytest.mark.parametrize("modules", [{"flow"}, {"alone"}, {"alone", "flow", "reasons"}])
def test_what_was_accepted_is_sent_within_the_limits_once_there_is_memory(
    modules: set[str], clock: Clock, short: set[str]
) -> None:
    bench = Bench5(clock, clean_session=False).accepted((Id.TOPIC_ALIAS_MAXIMUM, 5))
    client = bench.client
    pids = [client.publish(b"t", b"%d" % i, 1) for i in range(3)]
    alias = client.alias(b"aliased")
    alias.publish(b"first")
    bench.drain()
    bench.packets()
    bench.stream.room = 0
    alias.publish(b"second")
    short.update(modules)
    bench.outage()
    assert client.pending
    short.clear()
    bench.accepted((Id.RECEIVE_MAXIMUM, 1), (Id.TOPIC_ALIAS_MAXIMUM, 5), present=True)
    for i, pid in enumerate(pids):
        assert _sent(bench) == [(b"%d" % i, pid, 1)]
        bench.feed(build.ack("PUBACK", pid))
    assert client.pending == 0
    assert client.stats.dropped == 1


def test_a_refusal_that_cannot_be_read_now_is_read_later(clock: Clock, short: set[str]) -> None:
    bench = Bench5(clock).accepted()
    pid = bench.client.publish(b"t", b"x", 1)
    bench.drain()
    short.add("reasons")
    bench.feed(build.ack("PUBACK", pid, 0x87))
    assert (bench.client.pending, bench.client.error.kind) == (1, "resource")
    short.clear()
    bench.accepted()
    bench.drain()
    (again,) = bench.packets()
    bench.feed(build.ack("PUBACK", again.pid, 0x87))
    assert (bench.client.pending, bench.client.stats.dropped) == (0, 1)
    assert bench.client.connected


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, str], None]:
    """A function that has the next use of a name in a module raise MemoryError."""

    def short(module: ModuleType, name: str) -> None:
        real = getattr(module, name, None) or getattr(builtins, name)

        def fail(*_: object) -> None:
            monkeypatch.setattr(module, name, real, raising=False)
            raise MemoryError("memory allocation failed")

        monkeypatch.setattr(module, name, fail, raising=False)

    return short


class Full(list):
    """A list for which there is no more memory."""

    def append(self, _: object) -> None:
        raise MemoryError("memory allocation failed")


def _ended_for_memory(bench: VersionBench) -> bool:
    return not bench.client.connected and bench.client.error.kind == "resource"


def test_a_message_whose_code_cannot_be_loaded_comes_again(
    short: set[str], make: Callable
) -> None:
    """`poll` raises nothing: the connection ends, and `error` says why."""
    got: list[bytes] = []
    bench = make(clean_session=False, on_message=lambda m: got.append(m.payload)).online()
    short.add("qos2")
    bench.feed(peer.publish(b"t", b"x", 2, 5))
    assert _ended_for_memory(bench)
    short.clear()
    bench.online(present=True)
    bench.feed(peer.publish(b"t", b"x", 2, 5, dup=True))
    assert got == [b"x"]


def test_a_message_at_qos_2_is_delivered_once_there_is_memory_for_its_identifier(
    make: Callable,
) -> None:
    got: list[bytes] = []
    options = {"clean_session": False, "incoming": 1}
    bench = make(on_message=lambda m: got.append(m.payload), **options).online()
    bench.feed(peer.publish(b"t", b"first", 2, 5))
    bench.client.received = Full(bench.client.received)
    bench.feed(peer.publish(b"t", b"second", 2, 6))
    assert _ended_for_memory(bench)
    assert got == [b"first"]
    bench.client.received = list(bench.client.received)
    bench.online(present=True)
    bench.feed(peer.publish(b"t", b"second", 2, 6, dup=True))
    assert got == [b"first", b"second"]


def _past_pubrec(bench: VersionBench) -> int:
    pid = bench.client.publish(b"t", b"x", 2)
    bench.client.poll()
    bench.feed(peer.pubrec(pid))
    bench.outage()
    return pid


SESSIONS = pytest.mark.parametrize(("present", "first"), [(True, 0x62), (False, 0x3C)])


def _resumes(bench: VersionBench, first: int, pid: int) -> None:
    """The broker has the session, and the client sends this packet."""
    bench.online(present=True)
    bench.client.poll()
    (again,) = bench.sent()
    assert again.first == first
    assert pid.to_bytes(2, "big") in again.body


@SESSIONS
def test_a_session_is_in_doubt_only_if_its_connack_said_that_it_is_new(
    present: bool, first: int, once: Callable, make: Callable
) -> None:
    """If it is not, a message past PUBREC is not sent again, which could arrive twice."""
    bench = make(clean_session=False).online()
    pid = _past_pubrec(bench)
    bench.greet()
    once(qos2, "end_of")
    bench.feed(peer.connack(present=present))
    assert _ended_for_memory(bench)
    _resumes(bench, first, pid)


@SESSIONS
def test_without_memory_for_its_code_connack_says_whether_the_session_is_kept(
    present: bool, first: int, clock: Clock, short: set[str]
) -> None:
    bench = VersionBench(clock, 5, clean_session=False).online()
    pid = _past_pubrec(bench)
    bench.greet()
    short.add("connack")
    bench.feed(peer.connack(present=present))
    assert _ended_for_memory(bench)
    short.clear()
    _resumes(bench, first, pid)


def test_a_large_message_is_given_up_once_there_is_memory(short: set[str], make: Callable) -> None:
    options = {"clean_session": False, "give_up": 1, "rx_size": 64, "chunks": True}
    bench = make(on_message=raises(ValueError("of a handler")), **options).online()
    message = peer.publish(b"t", bytes(80), 1, 5)
    short.add("strays")
    with pytest.raises(ValueError, match="of a handler"):
        bench.feed(message)
    bench.drain()
    assert _ended_for_memory(bench)
    short.clear()
    bench.online(present=True)
    with pytest.raises(ValueError, match="of a handler"):
        bench.feed(message)
    bench.drain()
    assert (bench.client.stats.dropped, [p.first for p in bench.sent()]) == (1, [0x40])


def test_drop_without_memory_changes_nothing(once: Callable, make: Callable) -> None:
    reports: list[tuple[int, bytes, str]] = []
    bench = make(on_dropped=lambda *about: reports.append(about)).online()
    pid = bench.client.publish(b"t", b"x", 1)
    once(strays, "bytes")
    with pytest.raises(MemoryError):
        bench.client.drop(pid)
    assert (bench.client.pending, reports) == (1, [])
    assert bench.client.drop(pid)
    assert (bench.client.pending, reports) == (0, [(pid, b"t", "dropped by the application")])


def test_a_call_that_is_done_raises_nothing_for_lack_of_memory(
    bench: VersionBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = bench.client.publish(b"t", b"x", 1)
    call = methods.get(bench.client, "drop")  # as a board finds it
    monkeypatch.setattr(methods, "drop", raises(MemoryError("memory allocation failed")))
    assert call(pid)


def test_a_request_without_memory_is_sent_later(once: Callable, make: Callable) -> None:
    bench = make(ack_timeout=0).online()
    once(subs, "bytearray")
    subscription = bench.client.subscribe(b"t", lambda message: None)
    assert bench.sent() == []
    bench.pass_time(11_000)
    (asked,) = [p for p in bench.sent() if p.first != 0xC0]
    bench.feed(peer.suback(asked.pid, 0))
    assert (asked.first, subscription.granted) == (0x82, b"\0")


@pytest.mark.parametrize("closes", [False, True])
def test_3_1_1_is_fallen_back_to_once_there_is_memory(
    closes: bool, clock: Clock, once: Callable
) -> None:
    bench = Bench5(clock, version=None)
    pid = bench.client.publish(b"t", b"x", 1)
    if closes:
        bench.greet()
        bench.lose()
    bench.greet()
    once(fallback, "connect")
    if closes:
        bench.lose()
    else:
        bench.feed(peer.connack(1))
    bench.pass_time(2_000)
    bench.online()
    assert (bench.client.level, bench.client.connected) == (4, True)
    bench.client.poll()
    assert [(p.payload, p.pid) for p in bench.published()] == [(b"x", pid)]
