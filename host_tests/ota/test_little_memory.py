"""Memory is too short at any one moment of an update: it goes on, and the record stays true."""

import binascii
import json
from typing import Any

import pytest

import slots
from flatmq.ota import Updates, fetch
from ota.board import ARCHIVE, OWN, Board
from packets import build
from packets.properties import Id
from unit.short import Short
from v5.clients5 import Bench5


def _turns(board: Board) -> int:
    """Have it go on for 20 seconds, whatever `poll` raises. Returns how often that was."""
    raised = 0
    for _ in range(200):
        board.clock.now += 100
        try:
            board.turn(lambda right: [right])
        except (MemoryError, OSError):
            raised += 1
    return raised


def _ten_minutes(board: Board) -> None:
    board.clock.now += 600_000
    _turns(board)
    _turns(board)


@pytest.mark.parametrize("what", ["load", "wanted"])
def test_a_manifest_is_looked_at_again(
    what: str, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody publishes it again, and the connection stays."""
    import flatmq.ota

    Short(monkeypatch, flatmq.ota if what == "load" else fetch, what)
    board.offered()
    assert _turns(board) == 0
    assert board.resets
    assert (board.folder / "b").read_bytes() == ARCHIVE


@pytest.mark.parametrize("what", ["wanted", "_make_room"])
def test_ctrl_c_ends_no_update(what: str, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the program goes on, so does the update."""
    board.offered()
    with monkeypatch.context() as patch:
        Short(patch, fetch, what, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            _turns(board)
    _turns(board)
    assert board.resets


def test_a_flash_that_removes_nothing_does_not_keep_an_update(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.offered()
    board.turns()
    with monkeypatch.context() as patch:
        Short(patch, fetch.os, "remove", error=OSError(30))
        board.hears(OWN, b"")
        _turns(board)
        assert board.said["state"] == "cancelled"
    board.offered()
    _turns(board)
    assert board.resets


def test_manifests_that_come_faster_than_they_are_read_take_no_more_memory(board: Board) -> None:
    for n in range(100):
        board.hears(OWN, b"%d" % n * 500)
    assert len(board.updates._whole) == 1
    _turns(board)
    assert board.updates.about == binascii.crc32(b"99" * 500)


def test_a_status_is_published_later(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    board.turns()
    Short(monkeypatch, json, "dumps")
    board.hears(OWN, b"no manifest")
    _turns(board)
    assert board.said["state"] == "refused"


def test_a_version_that_has_proved_itself_is_good_on_the_flash(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next resets would bring the one before back."""
    board.restart(state="new", tries=1)
    Short(monkeypatch, slots, "store")
    assert _turns(board) == 0
    assert json.loads((board.folder / "slot").read_text())["state"] == "good"


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "full")])
def test_what_fails_is_tried_again_after_a_pause(
    error: Exception, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of a signature blocks, and the program has other things to do."""
    with monkeypatch.context() as patch:
        short = Short(patch, fetch, "wanted", error=error)
        board.offered()
        assert _turns(board) == 0
        assert 4 <= short.calls <= 5
    _turns(board)
    assert board.resets


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "full")])
def test_a_version_that_proves_nothing_makes_way_without_a_reason(
    error: Exception, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one that has used up all memory, or the flash."""
    board.restart(state="new", tries=1)
    board.updates._healthy = lambda: False
    Short(monkeypatch, slots, "store", error=error)
    for _ in range(14):  # 280 seconds
        assert _turns(board) == 0
    assert not board.resets
    _turns(board)
    _turns(board)
    assert board.resets


def test_the_record_is_what_the_flash_has(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that could not be noted is fetched again with the next connection."""
    short = Short(monkeypatch, slots, "store")
    board.offered()
    _turns(board)
    assert short.calls == 1
    assert board.said["why"] == "MemoryError()"
    assert board.updates.record == slots.load(str(board.folder))
    assert not board.resets
    board.offered()
    _turns(board)
    assert board.resets


@pytest.mark.parametrize(
    ("of", "name", "error"),
    [
        (slots, "store", MemoryError()),
        (fetch, "_make_room", OSError(5, "the flash")),
        (fetch.flash, "write", OSError(28, "full")),
    ],
)
def test_an_update_that_has_failed_is_tried_again_without_another_manifest(
    of: Any, name: str, error: Exception, board: Board,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The connection stays, or the broker keeps the session, and sends nothing retained."""
    with monkeypatch.context() as patch:
        short = Short(patch, of, name, error=error)
        board.offered()
        assert _turns(board) == 0
        assert (board.said["state"], short.calls) == ("failed", 1)
    _ten_minutes(board)
    assert board.resets
    assert (board.folder / "b").read_bytes() == ARCHIVE


def test_an_update_waits_for_room_on_the_flash(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_free", lambda folder: 20_000)
        board.offered()
        _ten_minutes(board)
        assert board.said["state"] == "failed"
        assert "full: it needs 26645 bytes, and 20000 are free" in board.said["why"]
    _ten_minutes(board)
    assert board.resets


@pytest.mark.parametrize("left", ["a version that failed", "a flash that removed nothing"])
def test_what_runs_no_more_makes_room(
    left: str, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flash has room for two versions, and none for a third."""
    other = board.folder / "b"
    other.write_bytes(b"x")
    monkeypatch.setattr(fetch, "_free", lambda _: 20_000 if other.exists() else 1_000_000)
    if left == "a version that failed":
        board.restart(failed={"version": "1.9", "counter": 19, "why": "watchdog"})
        board.offered()
    else:
        board.restart(old={"run": "b", "version": "0", "counter": 9})
        with monkeypatch.context() as patch:
            Short(patch, fetch.os, "remove", error=OSError(5))
            board.offered()
            _turns(board)
        _ten_minutes(board)
    _turns(board)
    assert board.resets
    assert other.read_bytes() == ARCHIVE


def test_an_update_that_has_failed_makes_way_for_another(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a manifest that is refused meanwhile is reported."""
    Short(monkeypatch, fetch, "_make_room")
    board.offered()
    _turns(board)
    board.hears(b"group/attic/ota/manifest", b"no manifest")
    _turns(board)
    assert board.said["state"] == "refused"
    board.offered(counter=30)
    _turns(board)
    assert board.resets
    assert board.updates.record["counter"] == 30


def test_a_failure_that_cannot_be_reported_yet(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.offered()
    Short(monkeypatch, slots, "store")
    Short(monkeypatch, json, "dumps", 3)  # after the first status, and "fetching"
    _turns(board)
    assert board.said["state"] == "failed"
    _ten_minutes(board)
    assert board.resets


@pytest.mark.parametrize("n", [1, 2])
def test_what_is_noted_is_started(n: int, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if there is no memory to say so: all later updates would wait for the reset."""
    right = slots.store

    def store(record: Any, folder: str) -> None:
        right(record, folder)
        if record["state"] == "new":
            Short(
                monkeypatch, json if n == 1 else board.client, "dumps" if n == 1 else "disconnect"
            )

    monkeypatch.setattr(slots, "store", store)
    board.offered()
    _turns(board)
    assert board.resets == 1
    assert json.loads((board.folder / "slot").read_text())["version"] == "2"


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ((Id.MAXIMUM_PACKET_SIZE, 180), set()),
        ((Id.MAXIMUM_QOS, 0), {"version", "micropython", "failed"}),
        ((Id.RETAIN_AVAILABLE, 0), {"version", "micropython", "failed"}),
    ],
)
def test_a_status_within_the_limits_of_the_broker(
    limit: tuple[int, int], said: set[str], board: Board, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one, a new version proves itself all the same."""
    failed = {"version": "1.9", "counter": 19, "why": "watchdog"}
    board.restart(state="new", tries=1, failed=failed)
    bench = Bench5(board.clock)
    folder = str(board.folder)
    updates = Updates(bench.client, b"dev/b/", "toy", 3, reset=board._reset, folder=folder)
    bench.accepted(limit)
    states = []
    for _ in range(9):
        updates.poll()
        bench.client.poll()
        for packet in bench.packets():
            if packet.name == "PUBLISH":
                found = json.loads(packet.payload)
                assert said <= found.keys()
                assert packet.retain == (limit[0] != Id.RETAIN_AVAILABLE)
                states.append(found["state"])
                if packet.qos:
                    bench.feed(build.ack("PUBACK", packet.pid))
    assert states == (["new", "good"] if said else [])
    assert slots.load(folder)["state"] == "good"
    assert ("at most 180 bytes for this broker" in capsys.readouterr().out) == (not said)
