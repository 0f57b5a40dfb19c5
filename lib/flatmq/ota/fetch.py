"""One update, from its manifest to the reset. Loaded with the first manifest."""

import binascii
import hashlib
import os

import slots  # type: ignore[import-not-found,unused-ignore]

from .. import flash, port
from ..flash import put
from ..port import collect, const, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from ..message import Message
    from . import Updates

HEAD = const(12)  # bytes of a request, and before the data of its answer: hash and position
_AGAIN_MS = const(20000)  # without an answer, until a request is repeated
_SYNC = const(4096)  # bytes between two syncs: a block of the flash
_BUFFER = const(512)
_STEP = const(4095)  # bytes that are checked at a time, less one
_TRIES = const(3)  # times that something else than what was signed may come
_SPARE = const(16384)  # bytes of the flash that stay free
_READY_MS = const(5000)  # between two calls of `ready`
_RETRY_MS = const(600000)  # after a failure
_RESET_MS = const(10000)  # for what waits to be acknowledged, before the reset


def begin(u: "Updates", source: int, text: bytes, about: int) -> None:
    """Begin the update that a manifest announces, or say why not."""
    try:
        said = wanted(u, text)
    except ValueError as error:
        if not u.work or u.state == "failed":  # else what is fetched goes on
            u.about = about
            u.tell("refused", str(error))
        collect()
        return
    if not said or (u.work and said["counter"] <= u.counter):
        return
    stop(u)
    u.origin = source
    u.counter = said["counter"]
    u.work = work(u, said, about)


def stop(u: "Updates") -> None:
    """Stop the update, and remove what came of it."""
    if u.work:
        if u.sink:
            u.sink.remove()
        u.work.close()  # without a sink then
        u.work = None
        u.to = ""
        u.tell("cancelled")


def work(u: "Updates", said: "dict[str, Any]", about: int) -> "Iterator[None]":
    """Fetch what a manifest announces, check it, and reset. Each step is short.

    What has failed is tried again after a while, or once the manifest comes again.
    """
    while True:
        u.about = about
        u.to = said["version"]
        try:
            yield from _steps(u, said)
            u.work = None
        except ValueError as error:
            u.work = None
            u.tell("refused", str(error))
        except Exception as error:
            u.seen[u.origin] = 0
            try:  # noqa: SIM105 (there is no contextlib on a board)
                u.tell("failed", repr(error))
            except MemoryError:  # `poll` publishes it
                pass
        except KeyboardInterrupt:
            u.work = work(u, said, about)  # if the program goes on, so does this
            raise
        finally:
            if u.sink:
                u.sink.close()
                u.sink = None
            collect()
        if not u.work:
            return
        at = port.ticks_ms()
        while not u.seen[u.origin] and ticks_diff(port.ticks_ms(), at) < _RETRY_MS:
            yield


def _steps(u, said):
    r = u.record
    why = ""
    while r["state"] == "new":  # what runs has not proved itself, and may need what ran before
        yield
    while u.ready:
        before, why = why, u.ready()
        if not why:
            break
        if why != before:
            u.tell("waiting", why)
        at = port.ticks_ms()
        while ticks_diff(port.ticks_ms(), at) < _READY_MS:
            yield
    other = u.folder + ("/b" if r["run"] == "a" else "/a")
    yield
    digest = binascii.unhexlify(said["sha256"])
    path = u.folder + "/ota-" + said["sha256"][:16]
    firmware = _firmware(said)
    _make_room(u, path, 0 if firmware else said["size"], other)
    u.tell("fetching")
    for left in range(_TRIES - 1, -1, -1):
        if firmware:
            part = firmware.partition(u, said)
            sink = firmware.Sink(part, path, digest, said["size"], said["piece"])
        else:
            sink = Sink(path, digest, said["size"], said["piece"])
        u.sink = sink
        topic = u.base + b"ota/get"
        asked = -1  # the position that was asked for,
        at = 0  # and when
        while sink.at < sink.size:
            if sink.failed:
                raise OSError("the flash cannot be written")
            if not u.client.connected:
                asked = -1
            elif asked != sink.at or ticks_diff(port.ticks_ms(), at) >= _AGAIN_MS:
                sink.expect()
                if u.client.publish(topic, sink.head, u.client.max_qos and 1) is not None:
                    asked = sink.at
                    at = port.ticks_ms()
            yield
        sink.close()
        u.sink = None
        found = yield from sink.digest()
        if found == digest:
            break
        os.remove(path)
        if not left:
            why = "sha256: not what was signed, three times"
            r["failed"] = slots.given_up(said["version"], said["counter"], why)
            slots.store(r, u.folder)
            raise ValueError(why)
    old = {"run": r["run"], "version": r["version"], "counter": r["counter"]}
    new = dict(r)  # so that `u.record` is what the flash has, whatever fails
    if firmware:
        firmware.begin(new, part)
    else:
        slots.Archive(path)  # OSError if it is none
        if r["old"]:
            new["old"] = None  # its file is about to be replaced
            slots.store(new, u.folder)
        os.rename(path, other)
        new["run"] = other[-1]
    new.update({"version": said["version"], "counter": said["counter"]})
    new.update({"state": "new", "old": old, "tries": 0, "crashes": 0, "why": ""})
    slots.store(new, u.folder)
    u.record = new
    try:
        if firmware:
            os.remove(path)
            firmware.switch(u, part)
        u.tell("resetting")
        at = port.ticks_ms()
        while u.client.pending and ticks_diff(port.ticks_ms(), at) < _RESET_MS:
            yield
        u.client.disconnect()
    finally:
        if new["state"] == "new":  # even without memory to say so
            u.reset()


def _firmware(said):
    """Return the module for what a manifest announces; None for an application."""
    if said["kind"] == "application":
        return None
    from . import firmware

    return firmware


def wanted(u: "Updates", text: bytes) -> "dict[str, Any] | None":
    """Return what a manifest says, None if there is nothing to do. ValueError if it is refused."""
    from . import manifest

    said = manifest.read(text, u.key)
    r = u.record
    names = [u.base[:-1].decode()] + ["group/" + group.decode() for group in u.groups]
    if said["to"] not in names:
        raise ValueError("to: it is for " + said["to"])
    if said["board"] != u.board:
        raise ValueError("board: must be " + u.board + ", not " + said["board"])
    if said["counter"] == r["counter"]:
        return None
    if said["counter"] < r["counter"]:
        raise ValueError("counter: version " + said["version"] + " is older than what runs")
    if r["failed"] and said["counter"] <= r["failed"]["counter"]:
        raise ValueError("it has failed here before: " + r["failed"]["why"])
    firmware = _firmware(said)
    if firmware:
        firmware.partition(u, said)
    return said


def _make_room(u, path, size, other):
    """Remove what was left of other updates, and without room beside it, what runs no more."""
    name = path.rsplit("/", 1)[1]
    done = 0
    for each in os.listdir(u.folder or "/"):
        if each == name:
            done = os.stat(path)[6]
        elif each.startswith("ota-"):
            os.remove(u.folder + "/" + each)
    needed = size - done + _SPARE
    if _free(u.folder) < needed:
        if u.record["old"]:
            u.record["old"] = None
            slots.store(u.record, u.folder)
        _remove(other)
    if _free(u.folder) < needed:
        raise OSError(f"full: it needs {needed} bytes, and {_free(u.folder)} are free")


def _remove(path):
    try:  # noqa: SIM105 (there is no contextlib on a board)
        os.remove(path)
    except OSError:
        pass


def _free(folder):
    said: Any = os.statvfs(folder or "/")
    return said[0] * said[3]


class Sink:
    """The file that pieces are written to, in their order.

    After a reset it goes on where it was synced last.
    """

    def __init__(self, path: str, digest: bytes, size: int, piece: int) -> None:
        self._path = path
        self.size = size
        self._piece = piece
        self.head = bytearray(digest[: HEAD - 4] + b"\0\0\0\0")  # the request for it
        self.failed = False  # the flash
        self._good = False  # the piece that comes is that one
        self._got = 0  # bytes of it
        self._n = 0  # of how many
        self._synced = 0
        self.file = flash.reopen(path)
        self.at = min(self.file.seek(0, 2), size)  # where the next piece begins

    def expect(self) -> None:
        """Make `head` the request for the next piece."""
        put(self.head, HEAD - 4, self.at)
        self._n = min(self._piece, self.size - self.at)

    # Small functions: a frame of more than eleven words would be on the heap, for every part.

    def take(self, message: "Message") -> None:
        """Write a piece, or a part of one, if it is the one that was asked for. OSError."""
        i = self._head_of(message) if message.offset < HEAD else 0
        if self._good and i < message.end - message.at:
            self._write(message, i)

    def _head_of(self, message):
        """Compare the head of a piece, as far as it is in this part. Returns how far that is."""
        i = message.offset
        if not i:
            self._good = message.total == HEAD + self._n
            self._got = 0
        while i < HEAD and i - message.offset < message.end - message.at:
            if message[i - message.offset] != self.head[i]:
                self._good = False
            i += 1
        return i - message.offset

    def _write(self, message, i):
        if not self._got:
            self.file.seek(self.at)
        i += message.at
        flash.write(self.file, message.buf, i, message.end - i)
        self._got += message.end - i
        if self._got == self._n:
            self._good = False
            self.at += self._n
            self._n = -1
            if self.at - self._synced >= _SYNC:
                self._synced = self.at
                flash.sync(self.file)

    def digest(self) -> "Generator[None, None, bytes]":
        """Return the SHA-256 of what is on the flash, after some steps."""
        hashed = hashlib.sha256()
        buffer = bytearray(_BUFFER)
        f = flash.access(self._path, "rb")
        at = 0
        n = f.readinto(buffer)
        while n:
            hashed.update(memoryview(buffer)[:n] if n < _BUFFER else buffer)
            at += n
            if at & _STEP == 0:
                yield
            n = f.readinto(buffer)
        f.close()
        return hashed.digest()

    def close(self) -> None:
        """Close the file, which stays."""
        flash.close(self.file)

    def remove(self) -> None:
        """Remove the file. If the flash does not, the next update does."""
        flash.close(self.file)
        _remove(self._path)
