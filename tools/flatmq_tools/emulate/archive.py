"""The modules of an emulated ESP32, in one part of its flash from which each takes one read.

QEMU needs a long time for each read of the flash, however few the bytes, and littlefs reads a
module in dozens. So boot.py mounts a filesystem at /lib that reads a whole module at once.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import image
from ..boards import Board
from ..errors import ToolError

_KEPT = ("/main.py", "/boot.py")
_BLOCK = 4096
# What boot.py reads and runs. P is the partition and A where this is in it; {0} is where the
# modules begin behind that, and {1} has a line for each: its path, offset and size. Memory that
# MicroPython's heap takes here would be missed by ESP-IDF, whose radio needs it.
_LOADER = """\
import gc, io, sys, vfs
def find(path):
 i = T.find("\\n" + path + " ")
 if i < 0: raise OSError(2)
 at, size = T[i + len(path) + 2 : T.find("\\n", i + 1)].split()
 return int(at) + A + {0}, int(size)
class Modules:
 def mount(self, readonly, mkfs): pass
 def umount(self): pass
 def stat(self, path):
  if "\\n" + path.rstrip("/") + "/" in T: return (0x4000,) + (0,) * 9
  return (0x8000,) + (0,) * 5 + (find(path)[1],) + (0,) * 3
 def open(self, path, mode):
  at, size = find(path)
  gc.collect()
  data = bytearray(size)
  P.readblocks(at // 4096, data, at % 4096)
  return io.BytesIO(data)
 def chdir(self, path): pass
T = {1!r}
vfs.mount(Modules(), "/lib")
sys.path[:] = ["/lib", ".frozen", ""]
"""
_BOOT = """\
import esp32, micropython
micropython.kbd_intr(-1)
def _(p=esp32.Partition.find(esp32.Partition.TYPE_APP)[-1]):
 a = {address} - p.info()[2]
 b = bytearray({size})
 p.readblocks(a // 4096, b)
 exec(bytes(b), {{"P": p, "A": a}})
_()
del _
__import__("gc").collect()
micropython.kbd_intr(3)
"""
# Where the modules are in a file that an update replaces, larger reads have to do. Still larger
# ones would take the memory that an update needs.
_LARGER_READS = b"""\
import flashbdev, vfs
vfs.umount("/")
vfs.mount(vfs.VfsLfs2(flashbdev.bdev, readsize=128), "/")
del flashbdev, vfs
"""


def with_larger_reads(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files with a boot.py that reads 512 bytes of the filesystem at a time."""
    return {**files, "/boot.py": _LARGER_READS + files["/boot.py"]}


def make(board: Board, files: dict[str, bytes], firmware: Path) -> image.Made:
    """Return the image, as `image.make` does, with the modules apart."""
    modules, kept = {}, {}
    for path, data in files.items():
        if path.endswith((".py", ".mpy")) and path not in _KEPT:
            modules[path.removeprefix("/lib")] = data
        else:
            kept[path] = data
    program, data = _packed(modules)
    address = board.flash.filesystem - -(-len(data) // _BLOCK) * _BLOCK
    boot = _BOOT.format(size=len(program), address=address).encode()
    kept["/boot.py"] = boot + kept.get("/boot.py", b"")
    made = image.make(board, kept, firmware_file=firmware)
    at = address - made.offset
    behind = at + len(data)
    if made.image[at:behind].strip(b"\xff"):
        raise ToolError(
            f"{firmware}: between it and the filesystem is no room for {len(data):,} bytes of "
            "modules"
        )
    return dataclasses.replace(made, image=made.image[:at] + data + made.image[behind:])


def _packed(modules: dict[str, bytes]) -> tuple[bytes, bytes]:
    """Return the program that boot.py runs, and that with the modules behind it."""
    table, end = "\n", 0
    for path, data in modules.items():
        table += f"{path} {end} {len(data)}\n"
        end += len(data)
    begin = len(_LOADER.format(1 << 30, table)) // _BLOCK * _BLOCK + _BLOCK
    program = _LOADER.format(begin, table).encode()
    return program, program.ljust(begin, b"\n") + b"".join(modules.values())
