"""The gate: what is on flash before the broker gets an acknowledgement, and what if that fails."""

import errno
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psutil
import pytest

import flatmq.journal
from flatmq import Client
from flatmq.spool import Spool
from spool.board import Board

pytestmark = pytest.mark.usefixtures("ticking")

PUBACK = 0x40
PUBREL = 6  # its type


@pytest.fixture(params=[4, 5], ids=["3.1.1", "MQTT 5"])
def board(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Board]:
    """A board that is online and handles what comes in."""
    handled: list[bytes] = []
    board = Board(tmp_path, request.param, lambda message: handled.append(message.payload))
    board.handled = handled  # type: ignore[attr-defined]
    board.poll(30)
    assert board.client.connected
    yield board
    assert board.broker.complaints == []


class Flash:
    """A flash whose journal cannot be written while `fails`; counts the writes."""

    def __init__(self) -> None:
        self.fails = False
        self.writes = 0

    def write(self, f, buf, at: int, n: int) -> None:
        if self.fails:
            raise OSError(errno.EIO, "the flash")
        self.writes += 1
        f.write(memoryview(buf)[at : at + n])


@pytest.fixture
def flash() -> Iterator[Flash]:
    flash = Flash()
    with mock.patch.object(flatmq.journal, "write", flash.write):
        yield flash


def _failures(board: Board) -> int:
    """Poll, and return how often the flash failed."""
    count = 0
    for _ in range(20):
        try:
            board.spool.poll(1)
        except OSError as e:
            assert e.errno == errno.EIO
            count += 1
    return count


def _ids_past_pubrec(board: Board) -> list[int]:
    ids = [0] * board.client_options["inflight"]
    return sorted(ids[: board.client.handover().released(ids)])


def test_nothing_is_acknowledged_while_the_flash_fails(board: Board, flash: Flash) -> None:
    flash.fails = True
    board.broker.send(b"1")
    assert _failures(board) > 10
    assert board.handled == [b"1"]
    assert [m[2] for m in board.broker.outgoing] == [False], "PUBREC has left"
    flash.fails = False
    board.poll(30)
    assert board.handled == [b"1"]
    assert board.broker.outgoing == []


def test_pubrel_waits_for_the_flash(board: Board, flash: Flash) -> None:
    board.publish(1, qos=2)
    flash.fails = True
    _failures(board)
    assert len(board.broker.unreleased) == 1
    board.boot()  # with nothing of the PUBREC on flash
    flash.fails = False
    board.poll(30)
    assert board.got == [1]
    assert (board.spool.pending, board.broker.unreleased) == (0, set())


def test_what_was_settled_before_an_older_record_is_not_sent_again(board: Board) -> None:
    """The older one, whose PUBACK was lost with the power, is."""
    board.broker.acks = False
    board.publish(0)
    board.publish(1, qos=2)
    board.poll(30)
    board.broker._out[:] = [packet for packet in board.broker._out if packet[0] != PUBACK]
    board.broker.acks = True
    board.poll(30)
    assert (board.client.pending, board.spool.pending) == (1, 2)
    board.boot()
    board.poll(30)
    assert board.got == [0, 1, 0]
    assert board.spool.pending == 0


def test_a_broker_that_has_forgotten_gets_it_again_only_after_that_is_noted(
    board: Board, flash: Flash
) -> None:
    board.publish(1, qos=2)
    while not _ids_past_pubrec(board):
        board.spool.poll(0)
    board.boot()
    board.broker.forget()
    assert _ids_past_pubrec(board)
    flash.fails = True
    sent = len(board.got)
    assert _failures(board) > 10
    assert not board.client.connected
    assert board.client.stats.losses == 0, "the same CONNACK is handled again"
    assert len(board.got) == sent
    flash.fails = False
    board.poll(30)
    assert board.got == [1, 1]
    assert board.spool.pending == 0


def test_more_incoming_messages_than_foreseen_are_remembered(tmp_path: Path) -> None:
    """In MQTT 5 the broker must not send them."""
    handled: list[bytes] = []
    board = Board(tmp_path, on=lambda message: handled.append(message.payload))
    board.client_options["incoming"] = board.client_options["inflight"] = 1
    board.boot()
    board.broker.acks = False
    for n in range(4):
        board.broker.send(b"%d" % n)
    board.poll(30)
    board.boot()
    board.poll(30)
    assert handled == [b"0", b"1", b"2", b"3"]
    assert board.broker.outgoing == []


def test_with_the_session_incoming_messages_are_forgotten_on_flash(board: Board) -> None:
    """Even if the power is cut before the first acknowledgement."""
    board.broker.acks = False
    board.broker.send(b"1")
    board.poll(30)
    identifier = board.broker.outgoing.pop()[0]
    board.broker.forget()
    board.broker.up = False
    board.poll(5)
    board.broker.up = True
    while not board.client.connected:
        board.spool.poll(1)
    board.boot()
    board.broker.outgoing.append([identifier, b"2", False])
    board.poll(30)
    assert board.handled == [b"1", b"2"]


def test_past_pubrec_a_smaller_client_loses_nothing(board: Board) -> None:
    def drops_pubrel(first: int, body: bytes) -> None:
        if first >> 4 != PUBREL:
            on_packet(first, body)

    on_packet = board.broker._on_packet
    with mock.patch.object(board.broker, "_on_packet", drops_pubrel):
        board.publish(0, 1, 2, qos=2)
        while len(_ids_past_pubrec(board)) < 3:
            board.spool.poll(0)
        board.poll(3)
    board.client_options["inflight"] = 1
    board.boot()
    board.poll(60)
    assert board.got == [0, 1, 2]
    assert (board.spool.pending, board.broker.unreleased) == (0, set())


def test_nothing_is_written_that_is_on_flash_already(board: Board, flash: Flash) -> None:
    board.poll(30)
    flash.writes = 0
    for _ in range(10):
        board.client.ping()
        board.poll(30)
    board.client.subscribe(b"other", lambda m: None, qos=1)
    board.poll(30)
    assert flash.writes == 0
    board.broker.send(b"1")
    board.poll(30)
    assert flash.writes == 2  # received, and released


def test_close_closes_the_files(board: Board) -> None:
    def opened() -> list[str]:
        files = [each.path for each in psutil.Process().open_files()]
        return [path for path in files if path.startswith(str(board.folder))]

    board.broker.send(b"x")
    board.publish(*range(3))
    board.poll(30)
    assert opened()
    board.spool.close()
    assert not opened()


def test_a_journal_of_a_larger_client_is_read(board: Board) -> None:
    for n in range(4):
        board.broker.send(b"%d" % n)
    board.broker.acks = False
    board.poll(30)
    board.spool.close()
    client = Client(b"b", link=board.broker, clean_session=False, incoming=1, inflight=2)
    spool = Spool(client, str(board.folder / "s"))
    assert sum(i > 0 for i in client.received) == 4
    client.received[0] = 0
    assert client.gate is not None
    client.gate(None)
    spool.close()
    client = Client(b"b", link=board.broker, clean_session=False)
    Spool(client, str(board.folder / "s"))
    assert sum(i > 0 for i in client.received) == 3
    assert len(client.received) == 32
