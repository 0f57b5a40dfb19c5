"""`python -m emulate.firmware`: new firmware for an emulated ESP32, with FLATMQ_FIRMWARE.

Each row is a board of its own that is offered the same MicroPython, changed in a few bytes.
"""

import argparse
import hashlib
import re
import sys
import tempfile
import time
from pathlib import Path

from emulate.updates import Board, judged, write
from flatmq_rigs import emulated
from flatmq_tools import boards, contents
from flatmq_tools.image import firmware as image_of
from flatmq_tools.ota import package

SECTION = "firmware"
KIND = "esp32"
OFFSET = boards.load(KIND).flashing.offset
PATIENCE = 1800  # s


def changed(application: bytes, old: bytes, new: bytes) -> bytes:
    """Return an application with other bytes, and with the checksum and the hash of these."""
    assert len(old) == len(new)
    assert old in application
    data = bytearray(application[: -image_of.HASH].replace(old, new))
    at, checksum = image_of.IMAGE_HEADER, 0xEF  # ESP_ROM_CHECKSUM_INITIAL
    for _ in range(data[1]):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        for byte in data[at + 8 : at + 8 + size]:
            checksum ^= byte
        at += 8 + size
    data[-1] = checksum
    return bytes(data) + hashlib.sha256(data).digest()


def fetched(firmware: str, made: package.Package, folder: Path) -> tuple[str, str]:
    """Return a firmware and a sketch as of a board that has all but the end of an update.

    So the end of another one need not take as long.
    """
    flash = Path(firmware).read_bytes()
    start = image_of.partitions(flash[image_of.TABLE - OFFSET :])["ota_1"].offset - OFFSET
    file = folder / "fetched.bin"
    file.write_bytes(flash.ljust(start, b"\xff") + made.archive)
    digest = hashlib.sha256(made.archive).hexdigest()
    sketch = folder / "sketch"
    sketch.mkdir()
    main = (contents.SKETCHES / KIND / "main.py").read_text("utf-8")
    mark = f"with open('/ota-{digest[:16]}', 'wb') as f:\n    f.write(bytes(99))\n"
    (sketch / "main.py").write_text(mark + main)
    return str(file), str(sketch)


def run(firmware: str, made: package.Package, whole: bool) -> tuple[str, int, float]:
    """Update a board. Return the last word of the push, the resets, and the seconds until then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sketch: list[str] = []
        if not whole:
            firmware, *sketch = fetched(firmware, made, folder)
        board = Board(firmware, folder, [], KIND, PATIENCE, tuple(sketch))
        began = time.monotonic()
        try:
            _, said = board.update(made, folder)
            spent = time.monotonic() - began
        finally:
            text = board.stop()
    return said, len(re.findall(r"reset by", text)), spent


def main(arguments: list[str] | None = None) -> int:
    """Run every row; 1 if one does not end as it should."""
    parser = argparse.ArgumentParser(prog="emulated-firmware", description=__doc__)
    parser.add_argument("--results", type=Path, help="Document to write the table to.")
    parser.add_argument("--only", default="", help="Part of the names of the rows to run.")
    given = parser.parse_args(arguments)
    firmware = emulated.needed(KIND + emulated.OTA)
    good = image_of.application(Path(firmware).read_bytes(), boards.load(KIND))
    offers = (
        ("another MicroPython", "runs x", changed(good, b"MicroPython v1", b"MicroPython v9")),
        ("one without `network`", "failed: ImportError",
         changed(good, b"\0network\0", b"\0netwurk\0")),
    )  # fmt: skip
    rows = []
    for what, wanted, application in offers:
        if given.only not in what:
            continue
        made = package.Package(KIND, "x", int(time.time()), "firmware", application)
        said, resets, spent = run(firmware, made, whole=what == offers[0][0])
        rows.append(judged(what, wanted, said, str(resets), f"{spent:.0f}"))
    head = ("on an emulated ESP32", "the board says", "resets", "until it says so, s", "")
    text = (
        "## Firmware over MQTT\n\n`python -m flatmq_rigs emulated-firmware`: an application "
        f"of {len(good):,} B for the second OTA partition, fetched whole by the first board "
        "and to its last 8 KB by the other; seconds of this machine."
    )
    return write(given.results, SECTION, text, head, rows)


if __name__ == "__main__":
    sys.exit(main())
