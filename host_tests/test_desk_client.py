"""Commands and boards at one broker."""

import os
import resource
import threading

import pytest

from brokers.core import types
from brokers.fake import FakeBroker
from flatmq import Client
from flatmq_tools import broker, desk_client
from flatmq_tools.desk_client import Desk, connect, follow, retained, turns
from flatmq_tools.errors import ToolError
from observer import PATIENCE, until


def test_two_commands_do_not_take_over_the_connection_of_each_other(
    running: broker.Broker,
) -> None:
    """Those in containers have the same process id."""
    clients = [Desk(running).client("watch") for _ in range(2)]
    for client in clients:
        connect(client)
    for _ in range(5):
        for client in clients:
            client.poll(50)
    assert [client.stats.losses for client in clients] == [0, 0]


def test_a_program_with_many_open_files_connects(running: broker.Broker) -> None:
    """select() takes no number of a file above 1023."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most[1] != resource.RLIM_INFINITY and most[1] < 2000:
        pytest.skip("this system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most[0], 2000), most[1]))
    held = [os.dup(1) for _ in range(1100)]
    try:
        client = Client(b"c", running.host, running.port)
        client.connect()
        client.publish(b"t", b"x", 1)
        assert client.wait()
        client.disconnect()
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_a_subscription_refused_after_a_reconnect_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And tried again: the broker's access control may be ill for a moment."""
    seen: list[str] = []
    errors = ""

    def done(what: str) -> bool:
        nonlocal errors
        errors += capsys.readouterr().err
        return what in errors or what in seen

    with FakeBroker() as fake:
        client = Desk(fake).client("watch")
        follow(client, ["dev/+/log"], lambda topic, message: seen.append(topic))
        fake.forbidden = b"/log"
        fake.end()
        for _ in turns(client, PATIENCE, lambda: done("refuses this filter")):
            pass
        assert "dev/+/log: the broker refuses this filter: 0x80" in errors
        fake.forbidden = None
        for _ in turns(client, PATIENCE, lambda: done("dev/a/log")):
            if client.subscriptions[0].granted != b"\x80" and not seen:
                fake.publish(b"dev/a/log", b"x", 0, 0)
        assert "dev/a/log" in seen


def test_a_subscription_that_is_not_answered_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_client, "PATIENCE_MS", 300)
    with FakeBroker() as fake:
        fake.withhold(types("SUBACK"))
        with pytest.raises(ToolError, match=r"answers no subscription to dev/\+/log$"):
            follow(Desk(fake).client("watch"), ["dev/+/log"], lambda topic, message: None)


def test_a_subscription_on_which_the_broker_closes_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk_client, "PATIENCE_MS", 2000)
    with FakeBroker() as fake:
        fake.answer_with("SUBACK", when=lambda _: bool(fake.end()))
        with pytest.raises(ToolError, match=r"no subscription to dev/.*: closed"):
            follow(Desk(fake).client("watch"), ["dev/+/log"], lambda topic, message: None)


def test_what_is_retained_ends_though_boards_go_on(running: broker.Broker) -> None:
    board = Client(b"board", running.host, running.port)
    board.connect()
    for name, text in (("kept", b"1"), ("gone", b"2")):
        board.publish(f"dev/{name}/crash", text, 1, True)
    assert board.wait()
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            board.publish(b"dev/live/crash", b"3")
            board.publish(b"dev/gone/crash", b"")
            board.poll(50)

    publishing = threading.Thread(target=go_on)
    ended = threading.Timer(PATIENCE, over.set)
    publishing.start()
    ended.start()
    try:
        found = retained(Desk(running).client("crashes"), "dev/+/crash")
        assert not over.is_set()
    finally:
        over.set()
        ended.cancel()
        publishing.join()
    assert found == {"dev/kept/crash": b"1", "dev/live/crash": b"3"}


def test_who_waits_for_messages_learns_of_a_lost_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with broker.embedded() as running:
        client = Desk(running).client("watch")
        connect(client)
        turn = turns(client, None)
        said: list[str] = []

        def look() -> None:
            next(turn)
            said.extend(capsys.readouterr().err.splitlines())

        for _ in range(2):
            running.kill()
            said.clear()
            until("a word", lambda: said, look)
            running.restart()
            until("the broker", lambda: client.connected, look)
            (line,) = said
            assert line.startswith("the connection to the broker ended: closed: ")
            assert line.endswith("; trying again")
