"""The files of an image, for the stand-ins of the emulators."""

import sys
from pathlib import Path

from flatmq_tools.boards import Board
from images import making

# The module `esp32` of a MicroPython on this machine, with the flash in a file.
ESP32 = """\
class Partition:
    TYPE_APP = 0

    @staticmethod
    def find(kind):
        return [Partition()]

    def info(self):
        return (0, 0, 0x10000, 0x1F0000, "factory", False)

    def readblocks(self, number, data, offset=0):
        with open({flash!r}, "rb") as file:
            file.seek(0x10000 + 4096 * number + offset)
            assert file.readinto(data) == len(data)
"""
BOOT = "exec(open('boot.py').read())"
_LEASH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
os.execvp(sys.argv[1], sys.argv[1:])
"""


def unpack(board: Board, content: bytes, folder: Path) -> None:
    """Write the files of a board's filesystem, whose bytes are `content`, into `folder`."""
    filesystem = making.littlefs(board, content)
    for where, _, names in filesystem.walk("/"):
        for name in names:
            path = f"{where.rstrip('/')}/{name}"
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with filesystem.open(path, "rb") as file:
                target.write_bytes(file.read())


def leashed(command: list[str]) -> list[str]:
    """Return a command that is killed when the thread that starts it ends; on Linux alone."""
    return [sys.executable, "-c", _LEASH, *command]
