"""The file that `flatmq ota push` sends: the program of a board in one version, or its firmware.

A line of JSON says what it is. Then comes the archive that the board runs it from: see
boards/shared/slots.py; or the image of an application, as an ESP32 has it in an OTA partition.
"""

from __future__ import annotations

import ast
import binascii
import hashlib
import json
import struct
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from .. import boards, bytecode, contents
from ..errors import ToolError
from . import keys
from .boards import base

PIECE = 4096  # bytes that a board asks for at a time: a block of its flash
RUN = "slots.mpy"  # stays on the board, whatever comes
FIRMWARE = "slots_esp32.mpy"  # the same
MAIN = "main.mpy"
# As in boards/shared/slots.py
_MAGIC = b"flatmq a1"
_ENTRY = 10
_FOLDER = 0xFFFFFF
_LARGEST = 1 << 24
_STARTS = {
    "/boot.py": b"# Chooses what runs. No update over MQTT changes this file.\n"
    b"import slots\n\nslots.boot()\n",
    "/main.py": b"# Runs what /boot.py has chosen. No update over MQTT changes this file.\n"
    b"import slots\n\nslots.run()\n",
}
# An ESP32's may run on a new firmware, to which the .mpy on the board can be unknown: a reset then
# brings the one before.
_BOOT_ESP32 = b"""\
# Chooses what runs. No update over MQTT changes this file.
try:
    import slots
except ValueError:
    __import__("machine").reset()
if "firmware" in slots.boot():
    __import__("slots_esp32").check()
"""


@dataclass(frozen=True)
class Package:
    """A version of a program."""

    board: str
    """The name of the board's file, such as pico_w."""
    version: str
    counter: int
    """A later version has a larger one."""
    kind: str = "application"
    archive: bytes = field(default=b"", repr=False)

    def written(self) -> bytes:
        """Return the bytes of the file."""
        said = {key: value for key, value in asdict(self).items() if key != "archive"}
        digest = hashlib.sha256(self.archive).hexdigest()
        return json.dumps({"flatmq": 1, **said, "sha256": digest}).encode() + b"\n" + self.archive


def read(file: Path) -> Package:
    """Return the package in a file. Raises ToolError."""
    head, _, archive = file.read_bytes().partition(b"\n")
    try:
        said = json.loads(head)
        if said.pop("flatmq") != 1:
            raise ValueError
        digest = said.pop("sha256", "")
        package = Package(**said, archive=archive)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ToolError(f"{file}: no package of `flatmq ota pack`") from error
    if digest not in ("", hashlib.sha256(archive).hexdigest()):
        raise ToolError(f"{file}: is damaged or cut short")
    return package


def make(name: str, sketch: str | None, version: str) -> Package:
    """Make the package of a sketch for the board of that name.

    Raises ToolError.
    """
    board = boards.load(name)
    _check_version(version)
    folder = contents.find_sketch(sketch or board.sketch)
    check(folder)
    files = contents.contents(folder, {})
    return Package(name, version, int(time.time()), archive=archive(modules(files)))


def make_firmware(name: str, file: Path, version: str) -> Package:
    """Make the package of a firmware. Raises ToolError."""
    from ..image import firmware

    board = boards.load(name)
    _check_version(version)
    if board.port != "esp32":
        raise ToolError(
            f"firmware of {name} cannot be updated over MQTT: only an ESP32 has a place for a "
            "second one"
        )
    try:
        application = firmware.application(file.read_bytes(), board)
    except ToolError as error:
        raise ToolError(f"{file}: {error}") from error
    return Package(name, version, int(time.time()), "firmware", application)


def _check_version(version: str) -> None:
    if not version or len(version) > 32 or not version.isprintable():
        raise ToolError(f"version: must be 1 to 32 printable characters, not {version!r}")


def check(sketch: Path) -> None:
    """Raise ToolError if a sketch takes no updates: it would be the last one on its board."""
    if "flatmq.ota" not in contents.imported(sketch):
        raise ToolError(
            f"{sketch}: it takes no updates: it must use flatmq.ota.Updates, as a station does"
        )


def modules(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the modules of a version, by their paths in its archive, from those of a board."""
    found = {}
    for path, data in files.items():
        if path == f"/lib/{RUN}" or not path.endswith((".mpy", "/main.py")):
            continue
        name = path.removeprefix("/lib").removeprefix("/")
        if name == "main.py":
            found[MAIN] = bytecode.mpy(_imported(data).decode(), name)
        else:
            found[name] = data
    return found


def _imported(source: bytes) -> bytes:
    """Return a main.py, which will be imported. Raises ToolError if it would do nothing."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == "__name__":
            raise ToolError(
                f"main.py: line {node.lineno}: asks for __name__, which is not __main__ if the "
                "board can be updated over MQTT: remove that"
            )
    return source


def archive(files: dict[str, bytes]) -> bytes:
    """Return an archive of these files. Raises ToolError if it is too large."""
    parents = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    places = sorted({*files, *(parents - {"."})})
    at = len(_MAGIC) + 2 + _ENTRY * len(places)
    entries = data = b""
    known: dict[int, str] = {}
    for path in places:
        key = binascii.crc32(path.encode())
        if key in known:
            raise ToolError(f"{path} and {known[key]}: rename one, as their CRC-32 is the same")
        known[key] = path
        size = len(files[path]) if path in files else _FOLDER
        entries += key.to_bytes(4, "big") + at.to_bytes(3, "big") + size.to_bytes(3, "big")
        data += files.get(path, b"")
        at += len(files.get(path, b""))
        if at >= _LARGEST:
            raise ToolError(f"a version must be less than {_LARGEST} bytes")
    return _MAGIC + struct.pack(">H", len(places)) + entries + data


@dataclass(frozen=True)
class Slots:
    """The settings of a board that is updated over MQTT. Raises ToolError."""

    key: Path
    """The public key, in PEM."""
    groups: tuple[str, ...] = ()
    version: str = "1"
    counter: int = field(default_factory=lambda: int(time.time()))
    """Only versions with a larger one follow."""

    def __post_init__(self) -> None:
        _check_version(self.version)
        for group in self.groups:
            base(f"group/{group}")


def settled(settings: dict[str, Any], slots: Slots | None) -> dict[str, Any]:
    """Return the settings of a station that takes updates."""
    if slots is None:
        return settings
    device = settings.get("device") or {}
    if not isinstance(device, dict):  # the sketch names it
        return settings
    parts = [name.strip() for name in str(device.get("parts") or "").split(",") if name]
    if "updates" not in parts:
        parts.append("updates")
    return {**settings, "device": {**device, "parts": ",".join(parts)}}


def slotted(files: dict[str, bytes], board: str, slots: Slots | None) -> dict[str, bytes]:
    """Return the files of a board that has slots, from those of one that has none.

    Raises ToolError.
    """
    if slots is None:
        return files
    found = {path: data for path, data in files.items() if not path.endswith((".mpy", "/main.py"))}
    found |= _STARTS
    kept = [RUN]
    if boards.load(board).port == "esp32":
        kept.append(FIRMWARE)
        found["/boot.py"] = _BOOT_ESP32
    for name in kept:
        source = contents.SKETCHES / contents.SHARED / name.replace(".mpy", ".py")
        found[f"/lib/{name}"] = bytecode.mpy(source.read_text("utf-8"), source.name)
    said = {"board": board, "key": f"{keys.modulus(slots.key):x}", "groups": [*slots.groups]}
    record = {"run": "a", "version": slots.version, "counter": slots.counter}
    found["/ota.json"] = json.dumps(said).encode()
    found["/slot"] = json.dumps(record).encode()
    found["/a"] = archive(modules(files))
    return dict(sorted(found.items()))
