"""Keep crashes while the flash is full, and while the heap is, on MicroPython.

Usage: `full.py PATH`, for the second, as the flash of the first needs a heap itself. Prints
whether the first was kept, whether the record of an earlier one is still there, whether a
temporary file is left, and the exception of a crash in a heap that stays full.
"""

import json
import os
import sys

import vfs
from flash_chip import Chip

from flatmq import crash

PATH = "/f/crash.json"


def keep(text):
    try:
        raise ValueError(text)
    except ValueError as error:
        return crash.keep(error, PATH)


chip = Chip(16)
vfs.VfsLfs2.mkfs(chip)
vfs.mount(vfs.VfsLfs2(chip), "/f")
assert keep("earlier")
with open(PATH, "rb") as f:
    earlier = f.read()
try:
    for n in range(chip.blocks * chip.size):  # until not even a name finds room
        with open(f"/f/{n}", "wb") as f:
            f.write(bytes(chip.size))
except OSError:
    pass
kept = keep("later")
with open(PATH, "rb") as f:
    there = f.read() == earlier
left = "crash.json.new" in os.listdir("/f")
vfs.umount("/f")

OTHER = sys.argv[1]
crashes = crash.Crashes(None, b"", path=OTHER)
held = [None] * 50000


def fill(n):
    """Leave no room, not even once this has ended."""
    for size in (512, 64, 16):
        try:
            while True:
                held[n] = bytearray(size)
                n += 1
        except MemoryError:
            pass
    held[n] = bytearray(512)


try:
    fill(0)
except MemoryError as error:
    kept_full = crash.keep(error, OTHER)
held[:] = []
assert kept_full
with open(OTHER) as f:
    print("SEEN", kept, there, left, json.load(f)["trace"].split("\n")[-1].split(":")[0])
