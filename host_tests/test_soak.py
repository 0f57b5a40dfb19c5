"""The soak in short, and that it finds what it looks for: each thing that may go wrong, once."""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import peer
from conftest import ROOT
from flatmq import Client
from flatmq_rigs import soak
from flatmq_rigs.__main__ import main as cli
from flatmq_rigs.proxy import Proxy
from flatmq_rigs.soak import faults, plan
from flatmq_rigs.soak.books import Arrivals, Books
from flatmq_rigs.soak.faults import Faults
from flatmq_rigs.soak.republished import Log, Republished
from flatmq_rigs.soak.verdict import Verdict
from flatmq_tools import broker, interpreter

SEED = 11

Shown = tuple[int, str]
Run = Callable[..., Shown]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a soak; its exit status and what it prints."""
    monkeypatch.delenv("BROKER", raising=False)

    def runs(messages: int, **options: Any) -> Shown:
        status = soak.main(messages, seed=SEED, **options)
        return status, capsys.readouterr().out

    return runs


def row(shown: str, name: str) -> str:
    """Return what stands behind a figure's name."""
    found = re.search(rf"^ +{re.escape(name)} +(.*?) *$", shown, re.MULTILINE)
    assert found, shown
    return found[1]


def wrong(shown: str) -> list[str]:
    """Return the names of the figures that are not as required."""
    return re.findall(r"^ +(\S.*?)  .*WRONG *$", shown, re.MULTILINE)


def test_nothing_is_lost_on_micropython(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "results.md"
    status, shown = run(20_000, mean=150_000, results_path=path)
    assert (status, wrong(shown)) == (0, []), shown
    assert "20,000 messages each way between MicroPython with a heap of 72 KB" in shown
    assert f"--seed {SEED}" in shown
    assert row(shown, "sent").startswith("20,000 / 20,000")
    assert row(shown, "repeated at QoS 2").startswith("0 / 0")
    assert row(shown, "allocated while online, bytes").startswith("0 ")
    for kind in faults.KINDS:
        assert re.search(rf"[1-9]\d* × {kind}", shown), shown
    document = path.read_text(encoding="utf-8")
    assert f"- seed: {SEED}" in document
    assert re.search(r"- client: MicroPython 1\.\d+\.\d+ with a heap of 72 KB", document)
    assert re.search(r"- broker: mosquitto version 2\.", document)
    assert "| lost at QoS 2 | 0 / 0 | 0 / 0 | met |" in document


@pytest.mark.parametrize("link", ["tls", "websocket", "websocket+tls"])
def test_nothing_is_lost_over_another_link(run: Run, tmp_path: Path, link: str) -> None:
    path = tmp_path / "results.md"
    status, shown = run(3_000, mean=40_000, link=link, results_path=path)
    assert (status, wrong(shown)) == (0, []), shown
    assert f"{soak.HEAP_KB[link]} KB and the mosquitto broker at " in shown
    assert row(shown, "allocated while online, bytes").startswith("0 ")
    assert ("in the TLS handshake" in shown) == link.endswith("tls")
    document = path.read_text(encoding="utf-8")
    assert f"<!-- soak-{link}:begin -->" in document
    assert f"`make soak LINK={link}`" in document
    assert re.search(r"- broker: mosquitto version 2\.", document)


def test_nothing_is_lost_on_cpython(run: Run) -> None:
    status, shown = run(6_000, mean=80_000, python="cpython")
    assert (status, wrong(shown)) == (0, []), shown
    assert "heap" not in shown.partition("lost at QoS 2")[2]


# What is appended to a module of the client, and the figures that must show it.
SPOILED = {
    "accepted, but not sent": (
        "session",
        """
_publish = Session.publish
_count = [0]
def _spoiled(self, topic, payload, qos=0):
    _count[0] += 1
    if qos and _count[0] % 100 == 0:
        return 1
    return _publish(self, topic, payload, qos)
Session.publish = _spoiled
""",
        {"lost at QoS 1", "lost at QoS 2"},
    ),
    "sent as new though the broker remembers": (
        "resend",
        """
_next = Resend.next
def _spoiled(self):
    self.session.same = False
    return _next(self)
Resend.next = _spoiled
""",
        {"publishes sent as new"},
    ),
    "QoS 2 delivered as often as it comes": (
        "router",
        """
_publish = Router.publish
def _spoiled(self, first, at, end):
    if first & 12 == 12:
        for i in range(len(self.client.received)):
            self.client.received[i] = 0
    return _publish(self, first, at, end)
Router.publish = _spoiled
""",
        {"repeated at QoS 2"},
    ),
    "QoS 2 forgotten with the connection": (
        "writer",
        """
_lost = lost
def lost(s, closed=False):
    for i in range(len(s.received)):
        s.received[i] = 0
    _lost(s, closed)
""",
        {"repeated at QoS 2"},
    ),
    "QoS 0 written twice": (
        "writer",
        """
_writing = writing
_count = [0]
def writing(s, write, hello):
    def spoiled(buf, at, n):
        if s.open and at < s.end and buf is s.buf and buf[at] == 0x30 and buf[at + 1] + 2 <= n:
            _count[0] += 1
            if _count[0] % 10 == 0 and not write(buf, at, buf[at + 1] + 2):
                return 0
        return write(buf, at, n)
    return _writing(s, spoiled, hello)
""",
        {"repeated at QoS 0"},
    ),
    "acknowledged, but not delivered": (
        "router",
        """
_publish = Router.publish
_count = [0]
def _spoiled(self, first, at, end):
    _count[0] += 1
    if first & 6 == 2 and _count[0] % 100 == 0 and self.client.answers <= self.client.room:
        buf = self.message.buf
        at += 2 + (buf[at] << 8 | buf[at + 1])
        self.client.answer(0x40, buf[at] << 8 | buf[at + 1])
        return None
    return _publish(self, first, at, end)
Router.publish = _spoiled
""",
        {"lost at QoS 1", "out of order at QoS 1"},
    ),
    "memory kept with each connection": (
        "connection",
        """
_lost = Connection.lost
def _spoiled(self, *reason):
    self.kept = [getattr(self, "kept", None)]
    return _lost(self, *reason)
Connection.lost = _spoiled
""",
        {"heap held before / after, bytes"},
    ),
    "memory allocated in poll": (
        "client",
        """
_poll = Client.poll
def _spoiled(self, ms=0):
    bytearray(40)
    return _poll(self, ms)
Client.poll = _spoiled
""",
        {"allocated while online, bytes"},
    ),
    "sockets left open": (
        "stream_tcp",
        """
def _spoiled(self):
    self.kept = [getattr(self, "kept", None), self._sock]
    self._sock = self._poll = None
TCP.close = _spoiled
""",
        {"file descriptors before / after"},
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_client_is_found_out(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, code, figures = SPOILED[name]
    library = tmp_path / "flatmq"
    shutil.copytree(ROOT / "lib" / "flatmq", library)
    with (library / f"{module}.py").open("a") as source:
        source.write(code)
    monkeypatch.setattr(soak, "LIBRARY", library)
    monkeypatch.setattr(faults, "KINDS", ("cut", "reset"))  # those that take no time
    status, shown = run(3_000, mean=15_000, heap_kb=128)
    assert status == 1
    assert figures <= set(wrong(shown)), shown


def test_a_client_that_stops_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one byte passes, and so not even the subscriptions are granted."""
    monkeypatch.setattr(soak, "PATIENCE", 0.5)
    monkeypatch.setattr(Faults, "rules", lambda self, count: faults.Rules(faults.Way(0)))
    status, shown = run(1_000)
    assert status == 1
    assert "nothing new for 0.5 s: the device is ended" in shown
    assert "the device did not come to its end" in shown


def test_what_kills_the_device_is_shown(run: Run) -> None:
    status, shown = run(1_000, heap_kb=40)
    assert status == 1
    assert "MemoryError" in shown


def test_a_broker_of_ones_own_is_left_as_it_was(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak.secrets, "token_hex", lambda size: "known")
    with broker.mosquitto(extra=soak.MOSQUITTO) as own:
        monkeypatch.setenv("BROKER", own.address)
        status, shown = run(2_000, mean=20_000)
        assert (status, wrong(shown)) == (0, []), shown
        assert f"the external broker at {own.address}" in shown
        client = Client(b"soak-known", own.host, own.port, clean_session=False)
        client.connect()
        assert not client.session_present
        client.disconnect()


def test_the_command_takes_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def noted(messages: int, **options: Any) -> int:
        seen.update(options, messages=messages)
        return 1

    monkeypatch.setattr(soak, "main", noted)
    words = (
        "--messages 5000 --seed 3 --kilobytes 20 --client cpython --heap 96 --link tls --results"
    )
    done = CliRunner().invoke(cli, ["soak", *words.split(), str(tmp_path / "r.md")])
    assert done.exit_code == 1
    assert seen == {
        "messages": 5000,
        "seed": 3,
        "mean": 20_000,
        "python": "cpython",
        "link": "tls",
        "heap_kb": 96,
        "results_path": tmp_path / "r.md",
    }


def test_what_a_user_can_mend_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "127.0.0.1:1")
    done = CliRunner().invoke(cli, ["soak", "--link", "tls"])
    assert (done.exit_code, done.output) == (
        1,
        "Error: BROKER must not be set with the link tls, which needs its own broker\n",
    )
    done = CliRunner().invoke(cli, ["soak"])
    assert (done.exit_code, done.output) == (1, "Error: no broker answers at 127.0.0.1:1\n")
    monkeypatch.delenv("BROKER")
    monkeypatch.setattr(interpreter, "find", lambda: None)
    done = CliRunner().invoke(cli, ["soak"])
    assert done.exit_code == 1
    assert done.output.endswith(f"Error: {interpreter.MISSING}\n")


def test_a_broker_that_is_none_ends_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "DRAIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("BROKER", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(soak.PeerError, match="broker"):
            run(1_000)


# The books


def test_arrivals_count_each_kind() -> None:
    arrivals = Arrivals(20)
    for number in (0, 1, 4, 2, 4, 19, 0):
        arrivals.take(number)
    assert (arrivals.came, arrivals.lost) == (5, 15)
    assert arrivals.again == 2
    assert arrivals.late == 1
    assert arrivals.gaps == 2
    for number in (-1, 20):
        with pytest.raises(ValueError, match=str(number)):
            arrivals.take(number)


def payload(number: int) -> bytearray:
    """The payload of message `number` of a QoS."""
    made = plan.template(number)
    made[:4] = number.to_bytes(4, "big")
    return made


@pytest.mark.parametrize(
    "message",
    [
        pytest.param((1, 1, payload(5) + b"x"), id="longer"),
        pytest.param((1, 1, payload(5)[:-1]), id="shorter"),
        pytest.param((1, 1, payload(5)[:-1] + b"~"), id="another byte"),
        pytest.param((1, 1, b"\0\0"), id="no number"),
        pytest.param((1, 1, payload(50)), id="beyond the last"),
        pytest.param((1, 0, payload(5)), id="another QoS"),
    ],
)
def test_the_desk_sees_a_message_that_is_not_of_the_plan(
    message: tuple[int, int, bytes],
) -> None:
    books = Books(30)
    books.take(1, 1, bytes(payload(5)))
    assert books.wrongs == 0
    expected, qos, data = message
    books.take(expected, qos, bytes(data))
    assert books.wrongs == len(books.wrong) == 1
    assert books.came == 1


class Message:
    """As much of a message as the device looks at."""

    def __init__(self, qos: int, data: bytes) -> None:
        self.qos = qos
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, i: int) -> int:
        return self._data[i]


@pytest.fixture
def at_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The books of the device, on this interpreter."""
    monkeypatch.syspath_prepend(str(soak.HERE))
    for name in set(soak.SCRIPT) - {"device"}:
        monkeypatch.delitem(sys.modules, name, raising=False)
    # By its path: the tests have a package of the same name.
    spec = importlib.util.spec_from_file_location("device_of_soak", soak.HERE / "device.py")
    assert spec is not None
    assert spec.loader is not None
    device = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(device)
    return device.Books()


def test_the_device_counts_each_kind(at_device: Any) -> None:
    for number in (0, 1, 4, 2, 4, 19, 0):
        at_device.at_2(Message(2, payload(number)))
    assert at_device.next == [0, 0, 20]
    assert at_device.missing == [0, 0, 16]
    assert at_device.rows == [0, 0, 2]
    assert at_device.again == [0, 0, 3]
    assert at_device.wrong == 0


@pytest.mark.parametrize(
    "data", [payload(5) + b"x", payload(5)[:-1], payload(5)[:-1] + b"~", b"\0\0"]
)
def test_the_device_sees_a_message_that_is_not_of_the_plan(at_device: Any, data: bytes) -> None:
    at_device.at_1(Message(1, data))
    at_device.at_0(Message(1, payload(5)))
    assert at_device.wrong == 2
    assert at_device.next == [0, 0, 0]


def test_a_third_of_the_messages_goes_out_at_each_qos() -> None:
    for messages in range(12):
        each = [sum(i % 3 == qos for i in range(messages)) for qos in plan.QOS]
        assert [plan.count(messages, qos) for qos in plan.QOS] == each


# The verdict

GOOD: dict[str, list[int]] = {
    "next": [10, 10, 10],
    "missing": [2, 0, 0],
    "again": [0, 4, 0],
    "twice": [],
    "wrong": [0],
    "rows": [1, 0, 0],
    "sent": [30],
    "longest": [21, 0],
    "steady": [0, 500],
    "heap": [50_000, 50_000, 50_000, 60_000],
    "files": [5, 5],
    "stats": [3, 2, 7, 0],
    "odd": [0, 0, 0],
    "kinds": [1, 1, 0, 0, 0, 0],
}


def books(left_out: tuple[int, int] | None = None) -> Books:
    """The desk's books after 30 messages, without one of them."""
    made = Books(30)
    for number in range(10):
        for qos in plan.QOS:
            if (qos, number) != left_out:
                made.take(qos, qos, bytes(payload(number)))
    return made


def names(verdict: Verdict) -> list[str]:
    """Return the names of the figures that are not as required."""
    return [figure.name for figure in verdict.figures if not figure.ok]


def test_a_good_soak_is_good() -> None:
    verdict = Verdict(30, 30, books(), GOOD, set(), 2.0)
    assert (verdict.ok, names(verdict)) == (True, [])
    assert Verdict(30, 30, books((0, 4)), GOOD, set(), 2.0).ok, "QoS 0 may be lost"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"sent": [29]}, "sent"),
        ({"next": [10, 10, 9]}, "lost at QoS 2"),
        ({"missing": [0, 0, 1]}, "lost at QoS 2"),
        ({"missing": [0, 1, 0]}, "lost at QoS 1"),
        ({"again": [0, 0, 1]}, "repeated at QoS 2"),
        ({"again": [1, 0, 0]}, "repeated at QoS 0"),
        ({"wrong": [1]}, "not what was sent"),
        ({"rows": [5, 0, 0]}, "rows of messages lost at QoS 0"),
        ({"longest": [5001, 1]}, "longest poll(20), ms"),
        ({"steady": [1, 500]}, "allocated while online, bytes"),
        ({"steady": [0, 0]}, "turns of the loop while online"),
        ({"heap": [50_000, 50_032, 50_032, 60_000]}, "heap held before / after, bytes"),
        ({"files": [5, 6]}, "file descriptors before / after"),
        ({"stats": [1, 2, 7, 0]}, "reconnects"),
        ({"stats": [3, 2, 7, 1]}, "publishes sent as new"),
        ({"odd": [0, 1, 0]}, "messages skipped / for nobody"),
        ({"odd": [0, 0, 1]}, "messages skipped / for nobody"),
        ({"kinds": [1, 0, 1, 0, 0, 0]}, "… refused / for a broken rule / for lack of room"),
        ({"kinds": [1, 0, 0, 1, 0, 0]}, "… refused / for a broken rule / for lack of room"),
        ({"kinds": [1, 0, 0, 0, 1, 0]}, "… refused / for a broken rule / for lack of room"),
    ],
)
def test_a_single_figure_spoils_it(told: dict[str, list[int]], name: str) -> None:
    verdict = Verdict(30, 30, books(), {**GOOD, **told}, set(), 2.0)
    assert not verdict.ok
    assert name in names(verdict)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_desk_lacks_spoils_it(qos: int) -> None:
    verdict = Verdict(30, 30, books((qos, 4)), GOOD, set(), 2.0)
    assert names(verdict) == [f"lost at QoS {qos}"]


def test_only_what_the_broker_published_again_may_come_twice() -> None:
    told = {**GOOD, "again": [0, 0, 1], "twice": [7]}
    assert Verdict(30, 30, books(), told, {7}, 2.0).ok
    assert names(Verdict(30, 30, books(), told, {6}, 2.0)) == ["repeated at QoS 2"]


def test_as_many_may_come_twice_as_the_log_says() -> None:
    told = {**GOOD, "again": [0, 0, 2], "twice": [7, 8]}
    assert Verdict(30, 30, books(), told, 3, 2.0).ok
    assert names(Verdict(30, 30, books(), told, 1, 2.0)) == ["repeated at QoS 2"]


def test_a_handshake_may_fail_where_the_link_broke() -> None:
    told = {**GOOD, "kinds": [1, 0, 0, 0, 0, 2]}
    assert Verdict(30, 30, books(), told, 0, 2.0, 2).ok
    assert names(Verdict(30, 30, books(), told, 0, 2.0, 1)) == ["… in the TLS handshake"]


# What the broker sends


def published(pid: int, number: int, first: int = 0x34) -> bytes:
    """A PUBLISH of message `number`, at QoS 2 unless `first` says otherwise."""
    return peer.packet(first, b"\0\1t" + pid.to_bytes(2, "big") + payload(number))


PUBREL_5 = b"\x62\2\0\5"


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    ("packets", "numbers"),
    [
        pytest.param([published(5, 7), PUBREL_5, published(5, 7, 0x3C)], {7}, id="republished"),
        pytest.param([published(5, 6), PUBREL_5, published(5, 6)], {6}, id="without DUP"),
        pytest.param([published(5, 7), published(5, 7, 0x3C), PUBREL_5], set(), id="in time"),
        pytest.param([published(5, 7), PUBREL_5, published(5, 8)], set(), id="another message"),
        pytest.param([published(5, 7), PUBREL_5, published(6, 7)], set(), id="another identifier"),
        pytest.param([published(5, 7), PUBREL_5, PUBREL_5], set(), id="released twice"),
        pytest.param([PUBREL_5, published(5, 7)], set(), id="released before"),
        pytest.param(
            [published(5, 7), PUBREL_5, published(5, 7, 0x32), b"\xd0\0"], set(), id="at QoS 1"
        ),
    ],
)
def test_a_message_that_the_broker_publishes_after_its_pubrel_is_seen(
    packets: list[bytes], numbers: set[int], step: int
) -> None:
    broker_sends = Republished()
    *before, last = packets
    for data in (b"".join(before) + last[:-1], last):  # cut, and whole on the next connection
        take = broker_sends.connection()
        for at in range(0, len(data), step):
            take(data[at : at + step])
    assert broker_sends.numbers == numbers


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        pytest.param(["PUBLISH d0 5", "PUBREL 5", "PUBLISH d1 5"], 1, id="republished"),
        pytest.param(["PUBLISH d0 5", "PUBLISH d1 5", "PUBREL 5"], 0, id="in time"),
        pytest.param(["PUBREL 5", "PUBLISH d0 5", "PUBLISH d1 5"], 0, id="another message"),
        pytest.param(["PUBREL 5", "PUBLISH d1 6"], 0, id="another identifier"),
        pytest.param(["PUBREL 5", "PUBLISH d1 5 to else"], 0, id="another client"),
    ],
)
def test_the_log_says_what_the_broker_publishes_after_its_pubrel(
    lines: list[str], count: int
) -> None:
    log = Log("soak-1")
    with open(log.output, "w", closefd=False) as written:
        print("1637588: mosquitto version 2.0.11 starting", file=written)
        for line in lines:
            kind, *dup, pid = line.removesuffix(" to else").split()
            client = "else" if line.endswith("else") else "soak-1"
            detail = f"{dup[0]}, q2, r0, m{pid}, 'a/b', ... (9 bytes)" if dup else f"m{pid}"
            print(f"1637588: Sending {kind} to {client} ({detail})", file=written)
    log.stop()
    assert (log.version, log.republished) == ("mosquitto version 2.0.11", count)


# The faults


def test_the_same_seed_gives_the_same_faults() -> None:
    one, two, other = Faults(1, 10_000), Faults(1, 10_000), Faults(2, 10_000)
    assert [one.rules(n) for n in range(50)] == [two.rules(n) for n in range(50)]
    assert [one.rules(n) for n in range(50)] != [other.rules(n) for n in range(50)]


def test_kinds_take_turns_in_both_directions() -> None:
    planned = Faults(1, 10_000)
    plans = [planned.rules(count) for count in range(200)]
    for count, rules in enumerate(plans):
        way = rules.up if rules.up.limit is not None else rules.down
        assert way.limit is not None
        assert way.then == faults.KINDS[count % 4]
        assert 0 < way.limit <= 15_000
    ups = sum(rules.up.limit is not None for rules in plans)
    assert 50 < ups < 150


def test_a_link_over_which_little_passes_breaks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[str] = []
    monkeypatch.setattr(Proxy, "strike", lambda self, fault: struck.append(fault))
    monkeypatch.setattr(faults, "OLDEST", 0.0)
    with Proxy("127.0.0.1", 1) as proxy:
        planned = Faults(1, 10_000)
        planned.turn(proxy)
        assert struck == []
        for count in (1, 2, 3):
            proxy.accepted = count
            for _ in range(3):
                planned.turn(proxy)
        assert struck == ["cut", "silence", "reset"]
        assert planned.happened == {"cut": 1, "silence": 1}
