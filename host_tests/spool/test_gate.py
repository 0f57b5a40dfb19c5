"""The gate: what is on flash before the broker gets an acknowledgement, and what if that fails."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import flatmq.client
import flatmq.journal
from flatmq import Client
from flatmq.spool import Spool
from spool.model_broker import Broker


class Board:
    def __init__(self, folder: Path, version: int) -> None:
        self.folder = folder
        self.version = version
        self.broker = Broker(version)
        self.handled: list[bytes] = []
        self.boot()

    def boot(self) -> None:
        """Also after the power was cut: what is in memory is gone."""
        self.broker.plug()
        self.client = Client(
            b"b", link=self.broker, clean_session=False, inflight=4, keepalive=0,
            retry_ms=1, retry_max_ms=1, version=self.version,
        )  # fmt: skip
        self.client.subscribe(b"in", lambda m: self.handled.append(m.payload), qos=2)
        self.spool = Spool(self.client, str(self.folder / "s"))
        self.client.start()

    def poll(self, times: int = 30) -> None:
        for _ in range(times):
            self.spool.poll(1)

    @property
    def got(self) -> list[bytes]:
        return [payload for _, _, payload in self.broker.taken]


@pytest.fixture(params=[4, 5], ids=["3.1.1", "MQTT 5"])
def board(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Board]:
    now = [0]

    def ticks_ms() -> int:
        now[0] += 1
        return now[0]

    with mock.patch.object(flatmq.client, "ticks_ms", ticks_ms):
        board = Board(tmp_path, request.param)
        board.poll()
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


def test_nothing_is_acknowledged_while_the_flash_fails(board: Board, flash: Flash) -> None:
    flash.fails = True
    board.broker.send(b"1")
    raised = 0
    for _ in range(20):
        try:
            board.spool.poll(1)
        except OSError as e:
            assert e.errno == errno.EIO
            raised += 1
    assert raised > 10
    assert board.handled == [b"1"]
    assert [m[2] for m in board.broker.outgoing] == [False], "PUBREC has left"
    flash.fails = False
    board.poll()
    assert board.handled == [b"1"]
    assert board.broker.outgoing == []


def test_pubrel_waits_for_the_flash(board: Board, flash: Flash) -> None:
    board.spool.publish(b"t", b"1", 2)
    flash.fails = True
    for _ in range(20):
        with contextlib.suppress(OSError):
            board.spool.poll(1)
    assert len(board.broker.unreleased) == 1
    board.boot()  # with nothing of the PUBREC on flash
    flash.fails = False
    board.poll()
    assert board.got == [b"1"]
    assert (board.spool.pending, board.broker.unreleased) == (0, set())


def test_past_pubrec_a_reboot_goes_on_with_pubrel(board: Board) -> None:
    for n in range(3):
        board.spool.publish(b"t", b"%d" % n, 2)
    while not board.broker.unreleased:
        board.spool.poll(0)
    while not any(wait == 0x70 for wait in board.client.waits):
        board.spool.poll(0)
    ids = [i for i, w in zip(board.client.ids, board.client.waits, strict=False) if w == 0x70]
    board.boot()
    assert [
        i for i, w in zip(board.client.ids, board.client.waits, strict=False) if w == 0x70
    ] == ids, "the same identifiers wait for PUBCOMP"
    board.poll()
    assert board.got == [b"0", b"1", b"2"]
    assert board.spool.pending == 0
    assert board.client.stats.resent >= 1


def test_a_broker_that_has_forgotten_gets_it_again_only_after_that_is_noted(
    board: Board, flash: Flash
) -> None:
    board.spool.publish(b"t", b"1", 2)
    while not any(wait == 0x70 for wait in board.client.waits):
        board.spool.poll(0)
    board.boot()
    board.broker.forget()
    assert board.client.waits[0] == 0x70
    flash.fails = True
    sent = len(board.got)
    raised = 0
    for _ in range(20):
        try:
            board.spool.poll(1)
        except OSError:
            raised += 1
    assert raised > 10
    assert not board.client.connected
    assert board.client.stats.losses == 0, "the same CONNACK is handled again"
    assert len(board.got) == sent
    flash.fails = False
    board.poll()
    assert board.got == [b"1", b"1"]
    assert board.spool.pending == 0


def test_incoming_messages_are_remembered_over_a_reboot(board: Board) -> None:
    board.broker.send(b"1")
    while not board.handled:
        board.spool.poll(0)
    board.boot()
    board.poll()
    assert board.handled == [b"1"]
    assert board.broker.outgoing == []
    assert not any(board.client.received)


def test_nothing_is_written_that_is_on_flash_already(board: Board, flash: Flash) -> None:
    board.poll()
    flash.writes = 0
    for _ in range(10):
        board.client.ping()
        board.poll()
    board.client.subscribe(b"other", lambda m: None, qos=1)
    board.poll()
    assert flash.writes == 0
    board.broker.send(b"1")
    board.poll()
    assert flash.writes == 2  # received, and released


def test_a_journal_of_a_larger_client_is_read(board: Board) -> None:
    for n in range(4):
        board.broker.send(b"%d" % n)
    board.broker.acks = False
    board.poll()
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
