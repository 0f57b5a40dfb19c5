"""A fleet is updated over a bad network, by boards that restart at any time.

Each board comes to the new version, or says why not.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

import sizes
import slots
from flatmq import port
from flatmq.ota import fetch
from flatmq_tools.ota import push
from ota.board import MADE, Board

BOARDS, ALL = 200, 2000
LOST = 0.05  # of all messages
RESTARTS = 0.01  # of all turns
FAULTS = ("", "battery", "full", "health", "kind")
TURN_MS = 100
TURNS = 6000


class Member(Board):
    """A board of a fleet, over its restarts."""

    def __init__(self, folder: Path, key: RSAPrivateKey, fault: str) -> None:
        folder.mkdir()
        super().__init__(folder, key)
        self._key = key
        self.fault = fault
        self.starts()

    def starts(self) -> None:
        """Start, with what is on its flash."""
        record = slots.load(str(self.folder))
        if slots.chosen(record, "reset"):
            slots.store(record, str(self.folder))
        self.restart(self._key)
        self.updates.board = "other" if self.fault == "kind" else "toy"
        self.updates.ready = lambda: "on battery" if self.fault == "battery" else ""
        new = record["version"] == "2"
        self.updates._healthy = lambda: not (new and self.fault == "health")
        self.heard = False


def test_all_come_to_the_new_version_or_say_why(
    tmp_path: Path, key: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]
    monkeypatch.setattr(port, "ticks_ms", lambda: now[0])
    text = push.manifest(MADE, "group/attic", key)
    chance = random.Random(1)
    fleet = []
    for n in range(ALL if sizes.whole() else BOARDS):
        fault = chance.choice(FAULTS) if chance.random() < 0.2 else ""
        fleet.append(Member(tmp_path / str(n), key, fault))
    free = fetch._free
    waiting = list(fleet)
    for _ in range(TURNS):
        now[0] += TURN_MS
        for board in waiting:
            full = board.fault == "full"
            monkeypatch.setattr(fetch, "_free", (lambda folder: 0) if full else free)
            if chance.random() < RESTARTS or board.resets:
                board.resets = 0
                board.starts()
            if not board.heard and chance.random() > LOST:
                board.heard = True
                board.hears(b"group/attic/ota/manifest", text)
            board.turn(lambda right: [right] if chance.random() > LOST else [])
        waiting = [board for board in waiting if not _has_ended(board, text)]
        if not waiting:
            break
    assert not waiting
    for board in fleet:
        record = slots.load(str(board.folder))
        assert record["state"] == "good"
        if record["version"] == "1" and not board.fault:  # its restarts looked like a failure
            assert record["failed"]["why"] == "reset"
    updated = [slots.load(str(b.folder))["version"] for b in fleet if not b.fault]
    assert updated.count("2") > 0.98 * len(updated)
    assert {slots.load(str(b.folder))["version"] for b in fleet if b.fault} == {"1"}
    assert {b.said["why"] for b in fleet if b.fault == "battery"} == {"on battery"}
    assert all("full: " in b.said["why"] for b in fleet if b.fault == "full")
    assert {b.said["why"] for b in fleet if b.fault == "kind"} == {"board: must be other, not toy"}
    health = [b.said["failed"] for b in fleet if b.fault == "health"]
    assert all(failed["version"] == "2" for failed in health)


def _has_ended(board: Member, text: bytes) -> bool:
    if board.fault == "battery" and board.said.get("state") == "waiting":
        return True
    found = push.outcome(MADE, text, board.said) if board.said else push.Outcome("")
    return found.state in push.ENDS and not board.resets


def test_a_restart_at_any_moment(tmp_path: Path, key: RSAPrivateKey) -> None:
    """In any turn, so between any two messages: the update goes on, and the new version runs."""
    text = push.manifest(MADE, "dev/b", key)
    for moment in range(40):
        board = Member(tmp_path / str(moment), key, "")
        for turn in range(100):
            if turn == moment or board.resets:
                board.starts()
            if not board.heard:
                board.heard = True
                board.hears(b"dev/b/ota/manifest", text)
            board.turn(lambda right: [right])
        record = slots.load(str(board.folder))
        assert (record["version"], record["state"]) == ("2", "good"), moment
