"""New firmware for an ESP32: it proves itself in the other partition, or the old one returns."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

import slots
from conftest import interpreter_command, ran
from flatmq import port
from flatmq_tools.ota import package, push
from ota.board import Board
from ota.fake_esp32 import Flash

HERE = Path(__file__).parent
OLD, NEW = b"old" * 1000, b"new!" * 20_000 + b"end"
ROOM = 1 << 17
_TURNS = 200


class Reset(BaseException):
    """The board resets."""


class Esp32(Board):
    """A board of the kind toy with the program 1, on the firmware `OLD`."""

    made = package.Package("toy", "1.27", 20, "firmware", NEW)

    def __init__(self, folder: Path, key: RSAPrivateKey, **given: Any) -> None:
        self.flash = Flash(OLD, (OLD, NEW), ROOM, **given)
        self.healthy = True
        self.starts = True  # the new firmware
        self.lasts = True  # on the flash
        self.full = False  # the file system
        self.boots: list[bytes | None] = []
        (folder / "b").write_bytes(b"the program before")
        super().__init__(folder, key)
        self.restart(old={"run": "b", "version": "0", "counter": 5})
        self.power_on()

    def power_on(self) -> None:
        """Boot, and again at each reset, until the program runs."""
        sys.modules["esp32"] = self.flash.module()  # type: ignore[assignment]
        sys.modules["machine"] = SimpleNamespace(reset=self._again)  # type: ignore[assignment]
        folder = str(self.folder)
        while True:
            runs = self.flash.boot()
            self.boots.append(runs)
            if runs == NEW and not self.starts:
                self.flash.parts["ota_1"][0] ^= not self.lasts
                continue
            sys.modules.pop("slots_esp32", None)
            slots.store = _full if self.full else PLAIN
            slots.known = None
            record = slots.load(folder)
            if slots.chosen(record, ""):
                slots.keep(record, folder)
            try:
                if "firmware" in record:
                    import slots_esp32

                    slots_esp32.check(folder)
            except Reset:
                continue
            break
        self.restart()
        self.updates._healthy = lambda: self.healthy or self.flash.running == "ota_0"

    def _again(self) -> None:
        raise Reset

    def offer(self, **changes: Any) -> dict[str, Any]:
        """Offer a firmware; return the record at the end."""
        archive = changes.get("archive", NEW)

        def answer(head: bytes) -> list[bytes]:
            at = int.from_bytes(head[8:12], "big")
            return [head[:12] + archive[at : at + package.PIECE]]

        self.offered(**changes)
        for _ in range(_TURNS):
            self.turn(answer)
            if self.resets:
                self.power_on()
                self.offered(**changes)
        return self.record()

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "slot").read_text())
        return found


PLAIN = slots.store


def _full(*_: Any) -> None:
    raise OSError(28)


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """Leave no module of a board behind."""
    yield
    slots.store = PLAIN
    slots.known = None
    for name in ("esp32", "machine", "slots_esp32"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("rollback", [True, False])
def test_new_firmware_runs_and_is_kept(tmp_path: Path, key: RSAPrivateKey, rollback: bool) -> None:
    board = Esp32(tmp_path, key, rollback=rollback)
    record = board.offer()
    assert board.boots == [OLD, NEW]
    assert (record["version"], record["counter"]) == ("1", 20)
    assert (record["state"], record["run"]) == ("good", "a")
    assert record["old"]["version"] == "0"  # the program before is still there
    assert not [*tmp_path.glob("ota-*")]
    assert (board.said["version"], board.said["micropython"]) == ("1", sys.version)
    board.power_on()
    assert board.flash.boot() == NEW
    # And the next one, which goes into the first partition.
    record = board.offer(archive=OLD, version="1.28", counter=21)
    assert (record["version"], record["state"]) == ("1", "good")
    assert board.flash.boot() == OLD


@pytest.mark.parametrize("rollback", [True, False])
def test_firmware_that_proves_nothing_makes_way(
    tmp_path: Path, key: RSAPrivateKey, rollback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0]

    def tick() -> int:
        now[0] += 20_000
        return now[0]

    monkeypatch.setattr(port, "ticks_ms", tick)
    board = Esp32(tmp_path, key, rollback=rollback)
    board.healthy = False
    record = board.offer()
    assert board.flash.running == "ota_0"
    assert board.boots.count(NEW) == (2 if rollback else 4)
    failed = board.said["failed"]
    assert (failed["version"], failed["counter"]) == ("1.27", 20)
    assert failed["why"] == "not healthy"
    assert failed["at"]
    assert (record["version"], record["counter"], record["state"]) == ("1", 10, "good")
    assert record["old"]["version"] == "0"
    assert "firmware" not in record
    # It is not tried again, and the next one is.
    assert board.said["why"] == "it has failed here before: not healthy"
    board.healthy = True
    assert board.offer(counter=30)["version"] == "1"


def test_firmware_that_does_not_start(tmp_path: Path, key: RSAPrivateKey) -> None:
    board = Esp32(tmp_path, key)
    board.starts = False
    record = board.offer()
    assert board.boots == [OLD, *4 * [NEW, OLD]]
    assert record["failed"]["why"] == "it did not start"
    assert (record["version"], record["state"]) == ("1", "good")


def test_firmware_that_the_flash_loses(tmp_path: Path, key: RSAPrivateKey) -> None:
    board = Esp32(tmp_path, key)
    board.starts = board.lasts = False
    record = board.offer()
    assert board.boots == [OLD, NEW, OLD]
    assert record["failed"]["why"].startswith("OSError(-5379")
    assert (record["version"], record["state"]) == ("1", "good")


@pytest.mark.parametrize("starts", [True, False])
def test_firmware_whose_tries_cannot_be_counted(
    tmp_path: Path, key: RSAPrivateKey, starts: bool
) -> None:
    """The file system is full: else the board would wait at its prompt, or try it for ever."""
    board = Esp32(tmp_path, key)
    board.starts = starts
    board.full = True
    board.offer()
    assert board.boots == [OLD, NEW, OLD]
    assert board.said["failed"]["why"] == "its try cannot be counted: OSError(28)"
    assert board.said["version"] == "1"


def test_it_goes_on_after_a_reset(tmp_path: Path, key: RSAPrivateKey) -> None:
    board = Esp32(tmp_path, key)
    board.offered()
    asked: list[int] = []

    def answer(head: bytes) -> list[bytes]:
        asked.append(at := int.from_bytes(head[8:12], "big"))
        return [head[:12] + NEW[at : at + package.PIECE]] if at < 0x12000 else []

    board.turns(answer)
    assert asked[-1] == 0x12000
    board.power_on()
    asked.clear()
    board.offered()
    board.turns(answer)
    assert asked[0] == 0x10000
    board.power_on()
    assert board.offer()["version"] == "1"


@pytest.mark.parametrize(
    ("given", "changes", "why"),
    [
        ({"second": False}, {}, "kind: the firmware that runs has no second OTA partition"),
        ({"second": None}, {}, "kind: the firmware that runs has no second OTA partition"),
        ({}, {"archive": bytes(ROOM + 1)}, "size: must be at most 131072 bytes, not 131073"),
        ({}, {"board": "esp32"}, "board: must be toy, not esp32"),
        ({}, {"counter": 9}, "counter: version 1.27 is older than what runs"),
        ({}, {"archive": b"an archive" * 999}, "it is no firmware: OSError(-5379"),
    ],
)
def test_refused(
    given: dict[str, Any], changes: dict[str, Any], why: str, tmp_path: Path, key: RSAPrivateKey
) -> None:
    board = Esp32(tmp_path, key, **given)
    record = board.offer(**changes)
    assert board.said["state"] == "refused"
    assert board.said["why"].startswith(why)
    assert (record["version"], record["counter"]) == ("1", 10)
    assert record.get("state", "good") == "good"
    assert record["old"]["version"] == "0"
    assert board.flash.boot() == OLD


def test_pieces_of_another_size(
    tmp_path: Path, key: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece is a block of the flash."""
    monkeypatch.setattr(push, "PIECE", 1024)
    board = Esp32(tmp_path, key)
    board.offer()
    assert board.said["why"] == "piece: must be 4096, not 1024"


def test_a_flash_that_cannot_be_written(tmp_path: Path, key: RSAPrivateKey) -> None:
    """It is tried again with the next connection."""
    board = Esp32(tmp_path, key)

    def fails() -> None:
        raise OSError(-1)

    board.flash.cut = fails
    board.offer()
    assert board.said["state"] == "failed"
    board.flash.cut = lambda: None
    assert board.offer()["version"] == "1"


def test_firmware_that_cannot_load_what_is_on_the_board(key_file: Path, tmp_path: Path) -> None:
    """Its .mpy may have another version. At a reset the boot loader brings the old firmware."""
    public = package.Slots(key_file.with_name(f"{key_file.name}.pub"))
    files = package.slotted({"/main.py": b""}, "esp32", public)
    assert "/lib/slots_esp32.mpy" in files
    assert "/lib/slots_esp32.mpy" not in package.slotted({"/main.py": b""}, "pico_w", public)
    (tmp_path / "slots.mpy").write_bytes(b"M\7" + files["/lib/slots.mpy"][2:])
    (tmp_path / "boot.py").write_bytes(b"import fake_machine\n" + files["/boot.py"])
    done = ran(
        [*interpreter_command("micropython", "100k"), tmp_path / "boot.py"],
        env={"MICROPYPATH": f"{tmp_path}:{HERE}"},
        timeout=60,
    )
    assert "Reset:" in done.stdout
