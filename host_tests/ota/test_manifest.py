"""Without the key nobody changes what runs: not by any field of a manifest, nor by a piece."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from conftest import ROOT, library, printed
from flatmq import signed
from flatmq_tools.ota import keys
from ota.board import ARCHIVE, GROUP, OWN, Board
from unit.short import Short

HERE = Path(__file__).parent
OTHER = {"counter": 21, "version": "3", "kind": "firmware", "board": "pico", "to": "dev/c",
         "size": 1, "piece": 256, "sha256": "0" * 64}  # fmt: skip


def _signed(said: dict[str, Any], key: RSAPrivateKey) -> bytes:
    text = json.dumps(said).encode()
    return text + b"\n" + base64.b64encode(keys.sign(key, text))


def _said(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.partition(b"\n")[0])
    return found


@pytest.mark.parametrize("size", [0, 1, 5, 11, 13, 1000])
def test_a_piece_comes_in_parts_of_any_size(size: int, board: Board) -> None:
    """Its first bytes, which say what it is a piece of, may be cut as well; 0: it is whole."""
    board.offered()
    board.part = size
    board.turns(lambda right: [b"\0" + right[1:], right])
    assert board.resets
    assert (board.folder / "b").read_bytes() == ARCHIVE


@pytest.mark.parametrize("name", sorted(OTHER))
def test_a_field_that_was_changed(name: str, board: Board) -> None:
    text, _, signature = board.manifest().partition(b"\n")
    changed = json.dumps({**json.loads(text), name: OTHER[name]}).encode()
    board.hears(OWN, changed + b"\n" + signature)
    board.turns(lambda right: [right])
    assert board.is_unchanged()
    assert board.said["why"].startswith("signature: ")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"board": "pico"}, "board: must be toy, not pico"),
        ({"to": "dev/c"}, "to: it is for dev/c"),
        ({"to": "group/cellar"}, "to: it is for group/cellar"),
        ({"counter": 9}, "counter: version 2 is older than what runs"),
        ({"kind": "boot"}, "kind: must be application or firmware, not boot"),
        ({"kind": "firmware"}, "kind: firmware of toy cannot be updated over MQTT"),
        ({"size": 1 << 40}, "manifest: size or piece is out of range"),
        ({"piece": 1}, "manifest: size or piece is out of range"),
        ({"sha256": "00"}, "manifest: sha256 must have 64 hex digits"),
        ({"size": "9"}, "manifest: size must be int"),
    ],
)
def test_a_manifest_for_something_else(changed: dict[str, Any], why: str, board: Board) -> None:
    """It is signed, and not for this board or this version."""
    said = {**_said(board.manifest()), **changed}
    board.hears(OWN, _signed(said, board.key))
    board.turns(lambda right: [right])
    assert board.is_unchanged()
    assert board.said["state"] == "refused"
    assert board.said["why"].startswith(why)


@pytest.mark.parametrize(
    "text", [b"{}", b"\n", b"x\n\n", b"[]\nAAAA", b"\xff" * 600, b"x" * 5000, b"{}\n" + b"A" * 512]
)
def test_a_manifest_that_is_none(text: bytes, board: Board) -> None:
    board.hears(OWN, text)
    board.turns()
    assert board.is_unchanged()


def test_signatures_that_only_look_right(key: RSAPrivateKey) -> None:
    """Of another length, above the modulus, or with other padding."""
    n = key.public_key().public_numbers().n
    good = keys.sign(key, b"data")
    assert signed.is_signed(b"data", good, n)
    above = (int.from_bytes(good, "big") + n).to_bytes(len(good) + 1, "big")
    for bad in (b"", good[1:], b"\0" + good, above, bytes(len(good)), good[::-1]):
        assert not signed.is_signed(b"data", bad, n)
    cube = hashlib.sha256(b"data").digest().rjust(len(good), b"\0")
    assert not signed.is_signed(b"data", cube, n)


def _flipped(right: bytes) -> list[bytes]:
    return [right[:-1] + bytes([right[-1] ^ 1])]


@pytest.mark.parametrize(
    "answer",
    [
        _flipped,
        lambda right: [right[:8] + b"\0\0\1\0" + right[12:]],
        lambda right: [bytes(8) + right[8:]],
        lambda right: [right[:-1], right + b"x", right[:11], b""],
    ],
)  # fmt: skip
def test_a_piece_that_was_changed(answer: Any, board: Board) -> None:
    board.offered()
    board.turns(answer)
    assert board.is_unchanged()
    # The right ones are still taken, if the wrong ones came in between.
    if board.updates.sink:
        board.turns(lambda right: [*answer(right), right, right])
        board.updates.sink.expect()


def test_three_times_other_bytes_are_the_end_of_an_update(board: Board) -> None:
    """Until there is a new one."""
    text = board.manifest()
    board.hears(OWN, text)
    board.turns(_flipped)
    assert board.said["why"] == "sha256: not what was signed, three times"
    board.restart()
    board.hears(OWN, text)
    board.turns(lambda right: [right])
    assert board.said["why"].startswith("it has failed here before: sha256: ")
    assert not [*board.folder.glob("ota-*")]


def test_a_reason_not_to(board: Board) -> None:
    board.updates.ready = lambda: "on battery"
    board.offered()
    board.turns(lambda right: [right])
    assert (board.said["state"], board.said["why"]) == ("waiting", "on battery")
    board.updates.ready = lambda: ""
    board.turns(lambda right: [right])
    assert board.is_unchanged()
    board.clock.now += 5000
    board.turns(lambda right: [right])
    assert board.resets


def test_a_new_version_has_five_minutes(board: Board) -> None:
    board.restart(state="new")
    board.client.connected = False
    board.clock.now += 5 * 60_000 - 1
    board.turn()
    assert not board.resets
    board.clock.now += 1
    board.turn()
    assert board.resets == 1
    assert json.loads((board.folder / "slot").read_text())["why"] == "no connection"


def test_an_update_that_is_cancelled(board: Board) -> None:
    board.offered()
    board.turns()
    assert [*board.folder.glob("ota-*")]
    board.hears(OWN, b"")
    board.turns()
    assert board.said["state"] == "cancelled"
    assert not [*board.folder.glob("ota-*")]
    assert board.is_unchanged()


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("older", [5, 15])
def test_the_newer_of_two_manifests_is_taken(older: int, order: int, board: Board) -> None:
    """Of the board and of its group, which come together with each connection."""
    both = [(OWN, 20), (GROUP, older)]
    for topic, counter in both[::order]:
        board.offered(topic, counter=counter)
    board.turns(lambda right: [right])
    assert board.resets
    record = json.loads((board.folder / "slot").read_text())
    assert (record["counter"], record["state"]) == (20, "new")


def test_the_end_of_another_update_ends_nothing(board: Board) -> None:
    board.offered(GROUP, counter=15)
    board.offered()
    board.turns()
    board.hears(GROUP, b"")
    board.hears(OWN, b"no manifest")
    board.clock.now += 30_000  # the first request was not answered
    board.turns(lambda right: [right])
    assert board.resets


def test_a_version_that_is_not_proved_is_not_replaced(board: Board) -> None:
    """It may need the one before it, whose place the next one takes."""
    (board.folder / "b").write_bytes(b"the old one")
    board.restart(state="new", tries=1, old={"run": "b", "version": "0", "counter": 5})
    board.updates._healthy = lambda: False
    board.offered()
    board.turns(lambda right: [right])
    assert (board.folder / "b").read_bytes() == b"the old one"
    board.updates._healthy = lambda: True
    board.turns(lambda right: [right])
    assert board.resets
    assert (board.folder / "b").read_bytes() == ARCHIVE


def test_exceptions_are_counted_until_it_works_again(board: Board) -> None:
    board.restart(crashes=9, why="OSError(5,)")
    board.turns()
    record = json.loads((board.folder / "slot").read_text())
    assert (record["crashes"], record["state"]) == (0, "good")


def test_a_heap_that_is_full_costs_no_more_than_the_manifest(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is asked for it again: it may keep the session, or the connection stay."""
    Short(monkeypatch, board.updates, "_collect")
    monkeypatch.setattr(board.client, "subscribe", lambda *_: board.offered())
    board.offered()
    board.turns()
    assert not board.updates.work
    board.clock.now += 5000
    board.turns(lambda right: [right])
    assert board.resets


@pytest.mark.parametrize("kind", ["application", "firmware"])
def test_a_piece_costs_no_heap(kind: str, tmp_path: Path) -> None:
    folders = [HERE, ROOT / "boards" / "shared", library("micropython")]
    script = HERE / "pieces.py"
    said = printed("micropython", "800k", script, tmp_path, kind, folders=folders)
    assert said.split() == ["0", "True"]
