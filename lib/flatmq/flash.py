"""Files that are to outlive a power cut: what the two interpreters do differently, a checksum.

littlefs makes everything written since the last `sync` visible at once or not at all. On other
file systems the checksums of those who write here tell what was cut.
"""

import os

from .port import MICROPYTHON

if MICROPYTHON:

    def access(path: str, mode: str):
        """Open a file."""
        return open(path, mode)

    def write(f, buf, at: int, n: int) -> None:
        """Write `n` bytes of `buf` from `at` on. OSError."""
        f.write(buf, at, n)

    def sync(f) -> None:
        """What was written to `f` is durable when this returns. OSError."""
        f.flush()

    def sync_folder(path: str) -> None:
        """The same for which files there are."""

else:

    def access(path: str, mode: str):
        """Open a file."""
        return open(path, mode, buffering=0)

    def write(f, buf, at: int, n: int) -> None:
        """Write `n` bytes of `buf` from `at` on. OSError."""
        while n:
            done = f.write(memoryview(buf)[at : at + n])
            at += done
            n -= done

    def sync(f) -> None:
        """What was written to `f` is durable when this returns. OSError."""
        os.fsync(f.fileno())

    def sync_folder(path: str) -> None:
        """The same for which files there are."""
        if os.name == "posix":
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def close(f) -> None:
    """Close a file, whatever it thinks of it. To leave that to the collector would have it
    written when memory cannot be had."""
    try:  # noqa: SIM105 (there is no contextlib on a board)
        f.close()
    except OSError:
        pass


# ENOSPC, which MicroPython's errno lacks; and ENAMETOOLONG, which littlefs says when it has no
# room for the name of a new file.
FULL = (28, 36)

# The polynomial of CRC-30/CDMA, reflected, four bits at a time: the widest whose values are small
# ints on a 32-bit board. binascii.crc32 would make an int on the heap of three records in four.
_TABLE = (
    0x00000000,
    0x2DB1DA21,
    0x2AAD3241,
    0x071CE860,
    0x2494E281,
    0x092538A0,
    0x0E39D0C0,
    0x23880AE1,
    0x38E74301,
    0x15569920,
    0x124A7140,
    0x3FFBAB61,
    0x1C73A180,
    0x31C27BA1,
    0x36DE93C1,
    0x1B6F49E0,
)
START = 0x3FFFFFFF


def crc(value: int, buf: "bytes | bytearray | memoryview", n: int) -> int:
    """The checksum of 30 bits of what `value` is the checksum of, and of the first `n` bytes of
    `buf` behind it. That of nothing is START."""
    for i in range(n):
        c = buf[i]
        value = _TABLE[(value ^ c) & 15] ^ value >> 4
        value = _TABLE[(value ^ c >> 4) & 15] ^ value >> 4
    return value


def put(buf: "bytearray | memoryview", at: int, value: int) -> None:
    """Write a number of 32 bits at `at`, big-endian."""
    buf[at] = value >> 24
    buf[at + 1] = value >> 16 & 255
    buf[at + 2] = value >> 8 & 255
    buf[at + 3] = value & 255


def get(buf: "bytearray | memoryview", at: int) -> int:
    """Read one that is below 2 to the 30th; -1 where it is not."""
    if buf[at] > 63:
        return -1
    return buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]
