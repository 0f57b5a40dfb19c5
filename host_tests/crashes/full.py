"""Keep crashes while the flash is full, and while the heap is, on MicroPython.

Prints whether the first was kept, whether the record of an earlier one is still there, whether
a temporary file is left, and the trace of a crash that was kept in a full heap.
"""

import json
import os

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

vfs.VfsLfs2.mkfs(chip)
vfs.mount(vfs.VfsLfs2(chip), "/f")


def fill():
    held = []
    while True:
        held.append(bytearray(512))


try:
    fill()
except MemoryError as error:
    crash.keep(error, PATH)
with open(PATH) as f:
    print("SEEN", kept, there, left, json.load(f)["trace"].split("\n")[-1].split(":")[0])
