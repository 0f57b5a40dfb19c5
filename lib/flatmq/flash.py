"""Write files that survive a power cut, on both interpreters, and compute checksums.

littlefs makes everything written since the last `sync` visible at once or not at all. On other
file systems, the modules that write find torn data by its checksum.
"""

import os

from .port import MICROPYTHON

if MICROPYTHON:

    def access(path: str, mode: str):
        """Open a file."""
        return open(path, mode)

    def write(f, buf, at: int, n: int) -> None:
        """Write `n` bytes of `buf` from `at` on. Raises OSError if the write fails."""
        f.write(buf, at, n)

    def sync(f) -> None:
        """Make durable what was written to `f`. OSError."""
        f.flush()

    def sync_folder(path: str) -> None:
        """Make the list of files in a folder durable. OSError."""

else:

    def access(path: str, mode: str):
        """Open a file."""
        return open(path, mode, buffering=0)

    def write(f, buf, at: int, n: int) -> None:
        """Write `n` bytes of `buf` from `at` on. Raises OSError if the write fails."""
        while n:
            done = f.write(memoryview(buf)[at : at + n])
            at += done
            n -= done

    def sync(f) -> None:
        """Make durable what was written to `f`. OSError."""
        os.fsync(f.fileno())

    def sync_folder(path: str) -> None:
        """Make the list of files in a folder durable. OSError."""
        if os.name == "posix":
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def reopen(path: str):
    """Open a file to read and write it. It is made if it is not there. OSError."""
    try:
        return access(path, "r+b")
    except OSError:
        return access(path, "w+b")


def patiently(load, *arguments):
    """Call a function that reads what is on the flash, and again if it raises OSError, twice."""
    for _ in range(2):
        try:
            return load(*arguments)
        except OSError:
            pass
    return load(*arguments)


def close(f) -> None:
    """Close a file, ignoring errors.

    If the garbage collector closed it instead, it would flush while the heap is full.
    """
    try:  # noqa: SIM105 (there is no contextlib on a board)
        f.close()
    except OSError:
        pass


# ENOSPC, which MicroPython's errno lacks; and ENAMETOOLONG, which littlefs reports if it has no
# room for the name of a new file.
FULL = (28, 36)

# CRC-30/CDMA, reflected, four bits at a time: the widest checksum that is always a small int on a
# 32-bit board. binascii.crc32 would put an int on the heap for three records in four.
_TABLE = list(range(16))
for _ in range(4):
    _TABLE = [n >> 1 ^ (0x38E74301 if n & 1 else 0) for n in _TABLE]
START = 0x3FFFFFFF


def crc(value: int, buf: "bytes | bytearray | memoryview", n: int) -> int:
    """Continue the 30-bit checksum `value` with the first `n` bytes of `buf`. Begin with START."""
    for i in range(n):
        c = buf[i]
        value = _TABLE[(value ^ c) & 15] ^ value >> 4
        value = _TABLE[(value ^ c >> 4) & 15] ^ value >> 4
    return value


def put(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Write a 32-bit number at `at`, big-endian."""
    buf[at] = value >> 24
    buf[at + 1] = value >> 16 & 255
    buf[at + 2] = value >> 8 & 255
    buf[at + 3] = value & 255


def get(buf: "bytearray | memoryview", at: int) -> int:
    """Read a 32-bit number at `at`. Returns -1 if it is 2**30 or more."""
    if buf[at] > 63:
        return -1
    return buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]
