"""From one version to the next, and back: a board on MicroPython, the desk, and a broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.fake import FakeBroker
from flatmq_tools import broker
from observer import PATIENCE
from ota.desk import Desk


@pytest.fixture
def desk(tmp_path: Path, key_file: Path) -> Iterator[Desk]:
    with broker.embedded() as near:
        made = Desk(tmp_path, near, key_file)
        made.install()
        yield made
        made.stop()


def _record(desk: Desk) -> dict[str, object]:
    found = json.loads((desk.board / "slot").read_bytes())
    assert isinstance(found, dict)
    return found


def test_a_new_version_runs(desk: Desk) -> None:
    pushed = desk.push(desk.package())
    assert desk.lives("2") == ["1", "2"]
    assert pushed.ended() == (0, pushed.text.getvalue())
    assert "pico-1 runs 2" in pushed.text.getvalue()
    assert _record(desk)["state"] == "good"
    # And the next one goes to the other slot.
    pushed = desk.push(desk.package("3"), "group/attic")
    assert desk.lives("3") == ["2", "3"]
    assert _record(desk)["run"] == "a"


@pytest.mark.parametrize(
    ("fault", "minutes", "why"),
    [
        ("import", 1, "ValueError('a sensor is missing'"),
        ("late", 1, "ValueError('it works no longer'"),
        ("broker", 0.01, "no connection"),
        ("health", 0.02, "not healthy"),
    ],
)
def test_a_version_that_fails_makes_way(fault: str, minutes: float, why: str, desk: Desk) -> None:
    """It gets three boots. Then the old one runs, says why, and does not try it again."""
    file = desk.package("2", fault, minutes)
    pushed = desk.push(file)
    tries = {"import": ["", "", ""]}.get(fault, ["2", "2", "2"])
    assert desk.lives("1") == ["1", *tries, "1"]
    status, text = pushed.ended()
    assert status == 1
    assert f"pico-1 failed: {why}" in text
    assert desk.lives("1") == ["1"]
    # The one after it is taken.
    pushed = desk.push(desk.package("3"))
    assert desk.lives("3") == ["1", "3"]
    assert pushed.ended()[0] == 0


def test_it_goes_on_after_a_reset(desk: Desk) -> None:
    desk.push(desk.package())
    assert "@reset" in desk.life(pieces=3)
    (part,) = desk.board.glob("ota-*")
    assert part.stat().st_size == 3 * 4096
    assert "@reset" in desk.life(pieces=5)
    assert part.stat().st_size == 8 * 4096
    assert desk.lives("2") == ["1", "2"]


@pytest.mark.parametrize("other", [b"", b"another"])
def test_a_manifest_that_the_broker_has_forgotten_is_offered_again(
    other: bytes, desk: Desk
) -> None:
    """But not over one that somebody else has offered since."""
    topic = b"dev/pico-1/ota/manifest"
    with FakeBroker() as fake:
        desk.near = fake
        pushed = desk.push(desk.package())
        assert fake.until(lambda: "PUBACK" in [p.name for p in fake.received], PATIENCE)
        (manifest,) = [p.payload for p in fake.onward]
        # Without it, and in its place the other one, if there is one.
        fake.kill()
        fake.publish(topic, other, 1, 1)
        fake.onward.clear()
        fake.restart()
        if other:
            assert "is offered another update now" in pushed.ended()[1]
            assert fake.onward == []
        else:
            assert fake.until(lambda: fake.onward, PATIENCE)
            assert (fake.onward[0].payload, fake.onward[0].retain) == (manifest, 1)
        desk.stop()


def test_a_manifest_by_another_key_is_refused(desk: Desk, other_key_file: Path) -> None:
    pushed = desk.push(desk.package(), key=other_key_file)
    assert desk.lives("1") == ["1"]
    assert pushed.ended()[0] == 1
    assert "refused: signature: it is not by the key of this board" in pushed.text.getvalue()
