"""Write a firmware into the second OTA partition of an ESP32. Loaded with its manifest."""

import hashlib

import slots  # type: ignore[import-not-found,unused-ignore]

from .. import flash
from ..port import const
from . import fetch

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from . import Updates

_BLOCK = const(4096)  # what an erase erases
_PART = const(512)  # bytes that are written at a time: ESP-IDF's radio needs the memory
_ERASE = const(6)  # of `ioctl`
_MARK = const(0xFFFF)  # bytes between two marks of how far it is, less one
_MARKED = const(16)  # the shift of that


def partition(u: "Updates", said: "dict[str, Any]") -> "Any":
    """Return the partition for a firmware. ValueError if it cannot be updated."""
    try:
        from slots_esp32 import Partition  # type: ignore[import-not-found,unused-ignore]

        why = "kind: the firmware that runs has no second OTA partition"
        running = Partition(Partition.RUNNING)  # type: ignore[arg-type,unused-ignore]
        other = running.get_next_update()
        there = other.info()[4] != running.info()[4]
    except ImportError:
        why = "kind: firmware of " + u.board + " cannot be updated over MQTT"
        there = False
    except OSError:
        there = False
    if not there:
        raise ValueError(why)
    if said["size"] > other.info()[3]:
        raise ValueError(f"size: must be at most {other.info()[3]} bytes, not {said['size']}")
    if said["piece"] != _BLOCK:
        raise ValueError(f"piece: must be {_BLOCK}, not {said['piece']}")
    return other


class Sink(fetch.Sink):
    """The partition that pieces are written to, in their order.

    Its file has a byte for each 64 KB that are there: after a reset it goes on behind them.
    """

    def __init__(self, part: "Any", path: str, digest: bytes, size: int, piece: int) -> None:
        super().__init__(path, digest, size, piece)
        self.part = part
        self.at = min(self.file.seek(0, 2) << _MARKED, size & ~_MARK)
        self._buffer = bytearray(_PART)

    def _write(self, message, i):
        at = self._got
        if not at:
            self.part.ioctl(_ERASE, self.at // _BLOCK)
        i += message.at
        while i < message.end:
            self._buffer[at % _PART] = message.buf[i]
            at += 1
            i += 1
            if at % _PART == 0:
                self._put(at - _PART)
        self._got = at
        if at == self._n:
            self._finish()

    def _put(self, at):
        self.part.writeblocks(self.at // _BLOCK, self._buffer, at)

    def _finish(self):
        if self._n % _PART:
            self._put(self._n - self._n % _PART)
        self._good = False
        self.at += self._n
        self._n = -1
        if self.at & _MARK == 0:
            flash.write(self.file, self.head, 0, 1)
            flash.sync(self.file)

    def digest(self) -> "Generator[None, None, bytes]":
        """Return the SHA-256 of what is on the flash, after some steps."""
        hashed = hashlib.sha256()
        for at in range(0, self.size, _PART):
            self.part.readblocks(at // _BLOCK, self._buffer, at % _BLOCK)
            hashed.update(memoryview(self._buffer)[: self.size - at])
            if at % _BLOCK == 0:
                yield
        return hashed.digest()


def begin(record: "dict[str, Any]", part: "Any") -> None:
    """Change the record: the firmware in a partition is there, and was not started yet."""
    running = part.__class__(part.RUNNING)
    record["firmware"] = {"from": running.info()[4], "to": part.info()[4], "old": record["old"]}


def switch(u: "Updates", part: "Any") -> None:
    """Have the next reset start the firmware that is in a partition. ValueError."""
    why = ""
    try:
        part.set_boot()
    except OSError as error:
        why = "it is no firmware: " + repr(error)
    if why:
        from slots_esp32 import end  # type: ignore[import-not-found,unused-ignore]

        slots.back(u.record, why)
        end(u.record)
        slots.store(u.record, u.folder)
        raise ValueError(why)
