"""A prompt over MQTT: who has the key types into it, and nobody else."""

import base64
import binascii
import contextlib
import errno
import hashlib
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console

import typed_command
from flatmq import Client
from flatmq_tools import broker
from flatmq_tools.desk_client import Desk
from flatmq_tools.errors import ToolError
from flatmq_tools.ota import keys, package, prompt, push
from observer import until
from ota import fakes
from ota.fakes import Message
from packets import build
from packets.properties import Id
from unit.fake_link import Clock
from unit.short import Short
from v5.clients5 import Bench5

TO = "dev/pico-1"


class Board(threading.Thread):
    def __init__(self, running: broker.Broker, key_file: Path) -> None:
        super().__init__(daemon=True)
        from flatmq.prompt import Prompt

        self.client = Client(b"pico-1", running.host, running.port, tx_size=1024, quiet=True)
        modulus = keys.modulus(key_file.with_name("fleet.pub"))
        self.names: dict[str, Any] = {"led": [0]}
        self.prompt = Prompt(self.client, f"{TO}/".encode(), modulus, self.names)
        self.ends = threading.Event()
        self.client.connect(10_000)
        while self.client.subscriptions[0].granted is None:
            self.client.poll(10)
        self.start()

    def run(self) -> None:
        while not self.ends.is_set():
            self.client.poll(10)
            self.prompt.poll()

    def stop(self) -> None:
        self.ends.set()
        self.join()


@pytest.fixture
def board(running: broker.Broker, key_file: Path) -> Iterator[Board]:
    made = Board(running, key_file)
    yield made
    made.stop()


def _typed(running: broker.Broker, key_file: Path, *lines: str) -> str:
    console = Console(file=io.StringIO(), width=200)
    left = iter(lines)

    def read(_: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    assert prompt.main(Desk(running), "pico-1", key_file, read, console) == 0
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_lines_run_on_the_board(board: Board, running: broker.Broker, key_file: Path) -> None:
    lines = ("1 + 1", "led[0] = 7", "led", "x = 2", "print(x, led)", "1 / 0", "  ", "'a' * 5000")
    text = _typed(running, key_file, *lines)
    assert text.splitlines()[1:4] == ["2", "[7]", "2 [7]"]
    assert "ZeroDivisionError" in text
    assert "aaa ..." in text
    assert len(text) < 1500
    # A session of its own: the names of the first are gone.
    assert "NameError" in _typed(running, key_file, "x")


def test_a_board_that_is_not_there_is_a_sentence_soon(
    running: broker.Broker, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt, "_GRANT_S", 0.2)
    with pytest.raises(ToolError, match="pico-1 does not answer: is it online, with"):
        _typed(running, key_file)


def test_who_else_asks_ends_no_session(key_file: Path) -> None:
    """The board answers on the same topic that it is busy."""
    client = mock.Mock()
    session = prompt.Session(client, TO, keys.private(key_file))
    take = client.subscribe.call_args.args[1]
    for answer in (b'{"busy":500}', b'{"n":1,"out":"x","left":500}'):
        take(mock.Mock(retain=False, payload=answer))
    assert session.run("1") == ("x", 500)
    take(mock.Mock(retain=False, payload=b'{"busy":500}'))
    with pytest.raises(ToolError, match="somebody is there, for 500 s at most"):
        session.begin()


@pytest.mark.parametrize("last", ["led[0] = 9", ""], ids=["line", "end"])
def test_a_session_that_is_over_says_so_at_once(
    last: str,
    board: Board,
    running: broker.Broker,
    key_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The board answers nothing more: its silence would be taken for a board that is away."""
    passed = 0
    clock = mock.Mock(monotonic=lambda: time.monotonic() + passed)
    console = Console(file=(shown := io.StringIO()), width=200)
    lines = iter(["led[0] = 7", *filter(None, [last])])

    def read(_: str) -> str:
        nonlocal passed
        if (line := next(lines, "")) != "led[0] = 7":
            passed = 1000
            board.stop()
            monkeypatch.setattr(prompt, "_ANSWER_S", 0.1)
        if line:
            return line
        raise EOFError

    monkeypatch.setattr(prompt, "time", clock)
    assert prompt.main(Desk(running), "pico-1", key_file, read, console) == 0
    assert ("the session is over" in shown.getvalue()) == bool(last)


def test_a_line_too_long_for_the_board_is_refused_and_the_next_one_runs(
    board: Board, running: broker.Broker, key_file: Path
) -> None:
    text = _typed(
        running, key_file, "x = 1", f"x = {'1' * 800}", "x % 100", f"x = {'1' * 2000}", "x"
    )
    lines = text.splitlines()[1:]
    assert lines[0] == "11"
    assert lines[1].endswith("bytes too long for the board")
    assert len(lines) == 3
    assert lines[2].startswith("111")


def test_a_broker_that_is_lost_is_no_silent_board(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt, "_ANSWER_S", 0.5)
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(broker.embedded())
        board = Board(running, key_file)
        stack.callback(board.stop)

        def read(_: str) -> str:
            stack.close()
            return "1"

        with pytest.raises(ToolError, match="no connection to the broker: "):
            prompt.main(Desk(running), "pico-1", key_file, read, Console(file=io.StringIO()))


def test_a_push_that_nobody_answers_says_so(
    running: broker.Broker, key_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "two.package").write_bytes(package.make("pico_w", None, "2").written())
    words = (running.address, "[red]", tmp_path / "two.package", "--signing-key", key_file)
    done = typed_command.flatmq("ota", "push", *words, "--seconds", "0.3")
    assert done.exit_code == 1
    assert "bytes to dev/[red]; " in done.output
    assert done.output.splitlines()[-1] == "[red] has not reported a result"


@pytest.mark.parametrize("command", ["ota cancel", "crashes"])
def test_a_name_in_brackets_is_no_colour(command: str, running: broker.Broker) -> None:
    assert "[red]" in typed_command.said(*command.split(), running.address, "[red]")


def test_two_pushes_at_once_and_a_status_that_is_none(
    running: broker.Broker, key_file: Path, tmp_path: Path
) -> None:
    """The second replaces the first, which says so; what a stranger publishes ends neither."""
    for name in ("two", "three"):
        made = package.Package("pico_w", name, len(name), archive=b"x")
        (tmp_path / name).write_bytes(made.written())
    board = Client(b"stranger", running.host, running.port)
    board.connect()
    shown = {name: io.StringIO() for name in ("two", "three")}
    over = threading.Event()

    def begin(name: str) -> Future[int]:
        console = Console(file=shown[name], width=200)
        words = (Desk(running), "pico-9", tmp_path / name, key_file, 60, console, over.is_set)
        future = pool.submit(push.main, *words)
        until("the word", lambda: "bytes to dev/pico-9" in shown[name].getvalue())
        for failed in (b'"x"', b"[1]", b"{}"):
            board.publish(b"dev/other/ota/status", b'{"failed":%s}' % failed, 1)
        assert board.wait()
        return future

    with ThreadPoolExecutor(2) as pool:
        try:
            first, second = begin("two"), begin("three")
            assert first.result(30) == 1
            assert not second.done()
        finally:
            over.set()
    assert "pico-9 is offered another update now, or none\n" in shown["two"].getvalue()
    assert "is offered another" not in shown["three"].getvalue()


def test_a_push_waits_for_a_board_that_tries_again(
    running: broker.Broker, key_file: Path, tmp_path: Path
) -> None:
    made = package.Package("pico_w", "two", 2, archive=b"x")
    (tmp_path / "two").write_bytes(made.written())
    about = binascii.crc32(push.manifest(made, TO, keys.private(key_file)))
    board = Client(b"board", running.host, running.port)
    board.connect()
    console = Console(file=(shown := io.StringIO()), width=200)
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        words = (Desk(running), "pico-1", tmp_path / "two", key_file, 60, console, over.is_set)
        pushing = pool.submit(push.main, *words)
        try:
            until("the word", lambda: f"bytes to {TO}" in shown.getvalue())
            for state, why in (("waiting", "on battery"), ("failed", "OSError(28,)")):
                said = {"state": state, "why": why, "manifest": about, "failed": None}
                board.publish(f"{TO}/ota/status", json.dumps(said), 1)
                assert board.wait()
                until("the reason", lambda why=why: f": {why}" in shown.getvalue())
            assert not pushing.done()
            board.publish(f"{TO}/ota/status", b'{"state":"good","counter":2}', 1)
            assert board.wait()
            assert pushing.result(30) == 0
        finally:
            over.set()
    assert [line for line in shown.getvalue().splitlines()[1:] if line] == [
        "pico-1 waits: on battery",
        "pico-1 failed, and tries again within ten minutes: OSError(28,)",
        "pico-1 runs two",
    ]


def test_a_push_that_was_cancelled_before_does_not_end_the_next_one() -> None:
    """The broker retains what the board said of it."""
    client = mock.Mock()
    server = push.Server(client, package.Package("pico_w", "2", 2, archive=b""), b"", "dev/b")
    take = client.subscribe.call_args.args[1]
    said = mock.Mock(topic=b"dev/b/ota/status", payload=b'{"state":"cancelled","manifest":0}')
    said.retain = True
    take(said)
    assert server.outcomes == {}
    said.retain = False
    take(said)
    assert server.outcomes["b"].state == "cancelled"


def test_pieces_that_a_board_asks_for_without_end_are_not_kept() -> None:
    client = mock.Mock()
    client.publish.return_value = None  # there is no room
    made = package.Package("pico_w", "2", 2, archive=bytes(5000))
    server = push.Server(client, made, b"", "dev/b")
    topic, ask, _ = client.subscribe.call_args_list[1].args
    assert topic == b"dev/+/ota/get"
    head = hashlib.sha256(made.archive).digest()[:8]
    for board in (b"a", b"b"):
        for at in (0, 4096) * 10:
            ask(Message(b"dev/%s/ota/get" % board, head + at.to_bytes(4, "big")))
    client.publish.return_value = 1
    client.publish.reset_mock()
    server.answer()
    topics = [call.args[0] for call in client.publish.call_args_list]
    assert topics == [b"dev/a/ota/piece", b"dev/b/ota/piece"]


@pytest.mark.parametrize("left", [b'"x"', b"null", b"[]", b"1e999"])
def test_an_answer_of_a_stranger_is_no_error(left: bytes, key_file: Path) -> None:
    client = mock.Mock()
    session = prompt.Session(client, TO, keys.private(key_file))
    take = client.subscribe.call_args.args[1]
    take(mock.Mock(retain=False, payload=b'{"n":1,"out":"x","left":%s}' % left))
    assert session.run("1") == ("x", 0)


@pytest.mark.parametrize("fault", ["there", "full"])
def test_a_key_is_written_with_its_public_half_or_not_at_all(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else boards would get the public half of another key, and could never be updated."""
    key, public = tmp_path / "fleet", tmp_path / "fleet.pub"
    if fault == "there":
        public.write_bytes(b"of another key")
    else:
        opened = os.open

        def full(path: Any, flags: int, mode: int = 0o777) -> int:
            if Path(path) == public:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return opened(path, flags, mode)

        monkeypatch.setattr(os, "open", full)
    with pytest.raises((ToolError, OSError), match=r"fleet\.pub"):
        keys.generate(key)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == (
        [b"of another key"] if fault == "there" else []
    )


def test_a_package_that_is_cut_short_is_not_sent(key_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "two.package"
    file.write_bytes(package.make("pico_w", None, "2").written()[:-1])
    words = ("127.0.0.1:1", "pico-9", file, "--signing-key", key_file)
    with pytest.raises(ToolError, match="is damaged or cut short"):
        package.read(file)
    assert typed_command.flatmq("ota", "push", *words).exit_code == 1


@pytest.mark.parametrize("text", ["chr(1) * 600", "'\\n' * 600", "chr(8364) * 600"])
def test_an_answer_that_json_makes_longer(
    board: Board, running: broker.Broker, key_file: Path, text: str
) -> None:
    shown = _typed(running, key_file, f"print({text})", "1 + 1")
    assert " ...\n2\n" in shown
    assert board.is_alive()


def test_too_small_for_what_is_to_be_said() -> None:
    from flatmq.ota import Updates
    from flatmq.prompt import Prompt

    client = Client(b"pico-1", "127.0.0.1", tx_size=799)
    for make in (
        lambda: Updates(client, b"dev/pico-1/", "pico_w", 1, reset=lambda: None),
        lambda: Prompt(client, b"dev/pico-1/", 1),
    ):
        with pytest.raises(ValueError, match="at most tx_size, 799 bytes, not 800"):
            make()


def test_without_the_key(board: Board, running: broker.Broker, other_key_file: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt, "_ANSWER_S", 0.5)
        with pytest.raises(ToolError, match="does not answer"):
            _typed(running, other_key_file, "led[0] = 9")
    assert board.names["led"] == [0]


class Hand(fakes.Client):
    """Lines that are signed by hand, for a prompt without a broker."""

    five: Any = None
    offers: list[int]

    def __init__(self, key_file: Path) -> None:
        from flatmq.prompt import Prompt

        super().__init__()
        self._key = keys.private(key_file)
        self.said: list[dict[str, Any]] = []
        self.names: dict[str, Any] = {"ran": []}
        modulus = keys.modulus(key_file.with_name("fleet.pub"))
        self.prompt = Prompt(self, b"dev/pico-1/", modulus, self.names)  # type: ignore[arg-type]

    def publish(self, topic: bytes, payload: str, qos: int, retain: bool = False) -> int:
        self.said.append(json.loads(payload))
        return 1

    def hears(self, topic: bytes, payload: bytes) -> list[dict[str, Any]]:
        self.said.clear()
        message = Message(topic, payload)
        message.retain = 0
        self.handler(message)
        self.prompt.poll()
        return self.said

    def asks(self) -> str:
        (said,) = self.hears(b"dev/pico-1/prompt/ask", b"")
        return str(said.get("grant", ""))

    def line(self, grant: str, n: int, **changes: Any) -> bytes:
        said = {"to": TO, "grant": grant, "n": n, "seconds": 60, "code": f"ran.append({n})"}
        text = json.dumps({**said, **changes}).encode()
        return text + b"\n" + base64.b64encode(keys.sign(self._key, text))

    def runs(self, line: bytes) -> bool:
        return bool(self.hears(b"dev/pico-1/prompt/in", line))


@pytest.fixture
def hand(key_file: Path) -> Hand:
    return Hand(key_file)


def test_lines_that_were_signed_for_something_else(hand: Hand) -> None:
    first = hand.asks()
    assert not hand.runs(hand.line("0" * 16, 1))
    assert not hand.runs(hand.line(first, 2))
    assert not hand.runs(hand.line(first, 1, to="dev/pico-2"))
    good = hand.line(first, 1)
    assert not hand.runs(good.replace(b"append", b"insert"))
    assert not hand.runs(b"x" * 5000)
    assert not hand.runs(hand.line(first, 1, code=5, seconds="x"))
    assert hand.runs(good)
    assert not hand.runs(good)
    assert hand.runs(hand.line(first, 2))
    # Nobody else gets in meanwhile, and the first stays.
    assert not hand.asks()
    assert hand.runs(hand.line(first, 3))
    assert hand.names["ran"] == [1, 2, 3]


def test_a_line_that_exits_does_not_end_the_program(hand: Hand) -> None:
    """Nobody may be near the board to start it again."""
    grant = hand.asks()
    (said,) = hand.hears(b"dev/pico-1/prompt/in", hand.line(grant, 1, code="raise SystemExit"))
    assert said["out"].endswith("SystemExit\n")
    assert hand.runs(hand.line(grant, 2))


def test_a_session_ends_in_time(clock: Clock, hand: Hand) -> None:
    first = hand.asks()
    assert hand.runs(hand.line(first, 1, seconds=10_000))
    clock.now += 599_000
    assert hand.runs(hand.line(first, 2))
    clock.now += 1000
    assert not hand.runs(hand.line(first, 3))
    second = hand.asks()
    assert second != first
    assert not hand.runs(hand.line(first, 1))
    assert hand.runs(hand.line(second, 1))
    assert hand.runs(hand.line(second, 2, code=""))
    assert not hand.runs(hand.line(second, 3))


def test_without_memory_a_session_is_granted_later(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    Short(monkeypatch, json, "dumps")
    with pytest.raises(MemoryError):
        hand.asks()
    hand.prompt.poll()
    assert hand.runs(hand.line(hand.said[0]["grant"], 1))


@pytest.mark.parametrize("what", ["signed", "answer"])
def test_without_memory_a_line_runs_later(
    what: str, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatmq import prompt as module

    line = hand.line(hand.asks(), 1)
    Short(monkeypatch, *(module, "signed") if what == "signed" else (json, "dumps"))
    with pytest.raises(MemoryError):
        hand.runs(line)
    hand.prompt.poll()
    assert (hand.names["ran"], hand.said[0]["n"]) == ([1], 1)


@pytest.mark.parametrize("what", ["_run", "dumps", "second dumps"])
def test_without_memory_for_an_answer_there_is_another(
    what: str, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line runs once. An answer that was not shortened yet is not sent."""
    line = hand.line(hand.asks(), 1, code="ran.append(1) or 'a' * 5000")
    if what == "_run":
        Short(monkeypatch, hand.prompt, what)
    else:
        Short(monkeypatch, json, "dumps", 2 if what == "dumps" else 3)
    with pytest.raises(MemoryError):
        hand.runs(line)
    hand.prompt.poll()
    assert [(said["n"], said["out"]) for said in hand.said] == [(1, "no memory\n")]
    assert hand.names["ran"] == ([] if what == "_run" else [1])
    assert not hand.runs(line)


def test_a_large_line_behind_one_that_has_come(hand: Hand) -> None:
    message = Message(b"dev/pico-1/prompt/in", hand.line(hand.asks(), 1))
    message.retain = 0
    hand.handler(message)
    assert not hand.runs(b"x" * 5000)


def test_an_answer_that_waits_for_room_is_not_lost(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else asks meanwhile, and the next line comes."""
    grant = hand.asks()
    with monkeypatch.context() as patch:
        patch.setattr(hand, "publish", lambda *_: None)
        hand.runs(hand.line(grant, 1, code="7 * 6"))
        hand.hears(b"dev/pico-1/prompt/ask", b"")
    hand.runs(hand.line(grant, 2))
    for _ in range(3):
        hand.prompt.poll()
    assert [said.get("n", "busy") for said in hand.said] == [1, "busy", 2]
    assert hand.names["ran"] == [2]


@pytest.mark.parametrize(
    ("limit", "answers"), [((Id.MAXIMUM_QOS, 0), 1), ((Id.MAXIMUM_PACKET_SIZE, 55), 0)]
)
def test_the_limits_of_a_broker_end_no_program(
    limit: tuple[int, int], answers: int, clock: Clock
) -> None:
    from flatmq.prompt import Prompt

    bench = Bench5(clock, tx_size=1024)
    made = Prompt(bench.client, b"dev/pico-1/", 1)
    bench.accepted(limit)
    bench.feed(build.publish(b"dev/pico-1/prompt/ask"))
    for _ in range(3):
        made.poll()
        bench.client.poll()
    assert bench.names().count("PUBLISH") == answers


def test_an_answer_too_large_for_the_broker_is_shortened(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(key_file)
    hand.five, hand.offers = True, [20, 2, 1, 110]
    publish = hand.publish

    def strict(topic: bytes, payload: str, qos: int) -> int:
        if len(topic) + len(payload) > 110 - 8:
            raise ValueError("packet must be at most 110 bytes for this broker")
        return publish(topic, payload, qos)

    monkeypatch.setattr(hand, "publish", strict)
    grant = hand.asks()
    hand.runs(hand.line(grant, 1, code="ran.append(1) or 'a' * 5000"))
    (said,) = hand.said
    assert (said["n"], said["out"][:5], said["out"][-5:]) == (1, "'aaaa", " ...\n")
    assert hand.runs(hand.line(grant, 2))
