"""Records on which the broker closes the connection, or which it refuses by reason code.

They are kept in a store of their own, and no other record is held up or lost.
"""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import flatmq.aside
import flatmq.flash
import flatmq.store
from conftest import ROOT
from flatmq.message import Message
from spool.board import Board

pytestmark = pytest.mark.usefixtures("ticking")

BAD = b"forbidden"


def _board(folder: Path, version: int, head: int = 128) -> Board:
    """A board whose broker forbids a topic."""
    board = Board(folder, version, head=head, segment=512)
    board.broker.forbidden = BAD
    return board


@pytest.fixture(
    params=[(4, 0), (4, 128), (5, 0), (5, 128)],
    ids=["3.1.1, no head", "3.1.1", "MQTT 5, no head", "MQTT 5"],
)
def board(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Board]:
    board = _board(tmp_path, *request.param)
    yield board
    assert board.broker.complaints == []


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Board]:
    """A board whose broker refuses by reason code."""
    board = _board(tmp_path, 5)
    board.broker.refuses = True
    yield board
    assert board.broker.complaints == []


def _one_of_twelve(board: Board, qos: int) -> str:
    """Have a forbidden record among others: it is set aside. Returns the reason."""
    board.publish(0, 1, qos=qos)
    assert board.spool.publish(BAD, b"00002", qos, retain=True)
    board.publish(*range(3, 12), qos=qos)
    board.poll()
    assert list(dict.fromkeys(board.got)) == [n for n in range(12) if n != 2]
    if qos == 2:
        assert len(board.got) == 11
    assert list(board.spool.dropped()) == [(0x31 | qos << 1, BAD, b"00002")]
    stats = board.spool.stats
    assert (stats.set_aside, stats.acknowledged, stats.dropped) == (1, 11, 0)
    assert "acknowledged=11" in repr(stats)
    assert (board.spool.pending, board.client.pending) == (0, 0)
    ((packet_id, topic, reason),) = board.reported  # the application's own on_dropped
    assert (packet_id >= 33280, topic) == (True, BAD)
    return reason


@pytest.mark.parametrize("qos", [1, 2])
def test_a_record_that_the_broker_closes_on_is_set_aside(board: Board, qos: int) -> None:
    assert _one_of_twelve(board, qos) == "the broker closed the connection on it"
    assert 3 <= board.broker.closed <= 4  # the first time others may be in flight


def test_a_handler_that_raises_sets_no_record_aside(board: Board) -> None:
    """The broker's packet identifiers are its own, even where they are those of records."""

    def fail(message: Message) -> None:
        raise ValueError

    board.client.subscribe(b"in", fail, 2)
    board.poll()
    for begin in range(0, 40, 5):
        board.publish(*range(begin, begin + 5))
        for n in range(5):
            board.broker.send(b"%d" % n)
        for _ in range(200):
            with contextlib.suppress(ValueError):
                board.spool.poll(1)
    assert (board.client.stats.dropped, board.broker.outgoing) == (40, [])
    assert (board.got, board.aside, board.spool.pending) == ([*range(40)], [], 0)
    assert {about[:2] for about in board.reported} == {(0, b"in")}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_record_that_the_broker_refuses_is_set_aside_at_once(refusing: Board, qos: int) -> None:
    assert "0x87" in _one_of_twelve(refusing, qos)
    assert len(refusing.got) == 11
    assert (refusing.broker.refused, refusing.broker.closed) == (1, 0)
    assert (refusing.client.stats.connects, refusing.client.stats.resent) == (1, 0)


def test_set_aside_by_hand_while_older_records_wait(board: Board) -> None:
    board.broker.forbidden = b""
    board.broker.acks = False
    board.publish(0, 1, 2)
    board.poll(20)
    records = board.spool._flight[:3]
    assert board.client.drop(board.spool._pid(records[1]))
    board.poll(20)
    assert board.spool.pending == 3, "the one before it is not acknowledged yet"
    assert board.aside == []
    board.broker.acks = True
    board.poll(20)
    assert (board.spool.pending, board.aside) == (0, [1])
    assert (board.spool.stats.set_aside, board.spool.stats.acknowledged) == (1, 2)


def test_what_was_set_aside_outlives_a_reboot_and_is_not_sent_again(board: Board) -> None:
    board.publish(0, topic=BAD)
    board.publish(1)
    board.poll()
    board.spool.close()
    board.boot()
    board.poll()
    assert (board.aside, board.got, board.spool.pending) == ([0], [1], 0)
    board.publish(2, topic=BAD)
    board.publish(3)
    board.poll()
    assert (board.aside, board.got) == ([0, 2], [1, 3])


def test_the_oldest_go_first(board: Board) -> None:
    for n in range(60):
        board.publish(n, topic=BAD)
        board.publish(n)
        board.poll(60)
    assert board.spool.stats.set_aside == 60
    kept = board.aside
    assert kept == list(range(60 - len(kept), 60))
    assert len(kept) >= 512 // 43
    files = list((board.folder / "s" / "dropped").iterdir())
    assert len(files) <= 2
    assert sum(f.stat().st_size for f in files) <= 2 * 512


def test_forbidden_records_in_all_places_hold_up_no_other(board: Board) -> None:
    board.publish(*range(4), topic=BAD)
    board.publish(*range(4, 12))
    board.poll(3000)
    assert (board.spool.pending, board.aside) == (0, list(range(4)))
    assert list(dict.fromkeys(board.got)) == list(range(4, 12))


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_flash_that_fails_meanwhile(board: Board, error: int) -> None:
    """The record stays with the spool, and is set aside once that works again.

    But a full file system must not hold up the others.
    """
    board.publish(0, topic=BAD)
    board.publish(1)

    def fails(path: str, mode: str):
        if "dropped" in path:
            raise OSError(error, "the flash")
        return real(path, mode)

    real = flatmq.flash.access
    raised = 0
    with mock.patch("flatmq.store.access", fails):
        for _ in range(200):
            try:
                board.spool.poll(1)
            except OSError as e:
                assert e.errno == error
                raised += 1
    if error == errno.ENOSPC:
        assert (raised, board.spool.pending, board.got) == (0, 0, [1])
        assert (board.spool.stats.dropped, board.spool.stats.set_aside) == (1, 0)
        return
    assert raised > 0
    assert board.spool.pending >= 1
    board.poll()
    assert (board.spool.pending, board.aside, board.got) == (0, [0], [1])
    assert (board.spool.stats.dropped, board.spool.stats.set_aside) == (0, 1)


def test_a_file_of_them_that_cannot_be_read_now_is_read_by_the_next_call(board: Board) -> None:
    for n in range(20):
        board.publish(n, topic=BAD)
        board.publish(n)
        board.poll(60)
    kept = board.aside
    first = min(f.name for f in (board.folder / "s" / "dropped").iterdir())

    def fails(path: str, mode: str):
        if path.endswith(first):
            raise OSError(errno.EIO, "the flash")
        return real(path, mode)

    real = flatmq.flash.access
    with mock.patch("flatmq.store.access", fails):
        others = board.aside
    assert 0 < len(others) < len(kept) == 20
    assert board.aside == kept


@pytest.mark.parametrize("name", ["_resize", "Store"])
def test_without_memory_a_record_is_copied_later(name: str, board: Board) -> None:
    """And those behind it are read where that stopped: none is skipped, and none comes twice."""
    of = flatmq.store if name == "_resize" else flatmq.aside
    right = getattr(of, name)
    failures = [MemoryError()] * 5

    def short(*given: object) -> object:
        if any(board.spool._aside) and failures:
            raise failures.pop()
        return right(*given)

    board.publish(0, topic=BAD)
    board.publish(*range(1, 40))
    raised = 0
    with mock.patch.object(of, name, short):
        for _ in range(1000):
            try:
                board.spool.poll(1)
            except MemoryError:
                raised += 1
    assert raised == 5
    assert board.got == list(dict.fromkeys(board.got)) == list(range(1, 40))
    assert (board.spool.pending, board.aside, board.spool.stats.dropped) == (0, [0], 0)


def test_a_full_file_system_that_removes_nothing_holds_up_no_other(board: Board) -> None:
    """littlefs may need room to remove a file."""
    remove = flatmq.store.os.remove

    def full(path: str) -> None:
        if "dropped" in path:
            raise OSError(errno.ENOSPC, "no space")
        remove(path)

    with mock.patch.object(flatmq.store.os, "remove", full):
        for n in range(40):
            board.publish(n, topic=BAD)
            board.publish(n)
            board.poll(60)
    stats = board.spool.stats
    assert (board.spool.pending, board.got) == (0, list(range(40)))
    assert (stats.set_aside, stats.dropped) == (len(board.aside), 40 - len(board.aside))
    assert stats.dropped


def test_nothing_was_set_aside(board: Board) -> None:
    board.publish(1)
    board.poll()
    assert list(board.spool.dropped()) == []
    assert not (board.folder / "s" / "dropped").exists()


def test_a_record_that_rots_before_it_is_copied_is_counted(board: Board) -> None:
    board.publish(0, topic=BAD)
    board.publish(1, 2)
    while board.broker.closed < 2:
        board.poll(1)
    for file in (board.folder / "s").iterdir():
        if file.suffix == ".seg" or file.name == "head":
            data = bytearray(file.read_bytes())
            if len(data) > 20:
                data[20] ^= 1
                file.write_bytes(data)
    board.poll()
    assert (board.spool.pending, board.aside) == (0, [])
    assert board.spool.stats.dropped == 1
    assert board.spool.stats.corrupt == 1


def test_the_guide_prints_what_was_set_aside(
    board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    assert board.spool.publish(BAD, b"21.5", 2, retain=True)
    board.publish(1)
    board.poll()
    guide = (ROOT / "docs/spool.md").read_text()
    _, text = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    capsys.readouterr()  # the broker has closed the connection, which is printed
    exec(text, {"spool": board.spool})
    assert capsys.readouterr().out == "b'forbidden' b'21.5' QoS 2 retained\n"
