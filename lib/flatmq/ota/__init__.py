"""Updates over MQTT, for a board that runs its program from one of two slots.

    updates = Updates(client, b"dev/pico-1/", "pico_w", key)
    client.start()
    while True:
        client.poll(20)
        updates.poll()

The host's side is `flatmq ota`. A manifest, which is signed, says which version there is. The
board asks for it piece by piece, checks it, and resets. The new version has to prove itself:
connected, its status acknowledged, healthy. Otherwise the one before returns. The slots and the
record that chooses between them are in the board's module `slots`.

    BASE/ota/manifest  group/GROUP/ota/manifest    to the board, retained
    BASE/ota/get  BASE/ota/piece                   a request, and its answer
    BASE/ota/status                                of the board, retained
"""

from binascii import crc32

import slots  # type: ignore[import-not-found,unused-ignore]

from .. import port
from ..port import const, load, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .. import Client
    from ..message import Message

_LARGEST = const(2048)  # bytes of a manifest
_ROOM = const(797)  # bytes of a status, and more
_RETAIN = const(2)  # what the broker offers: see `v5.server`
_PAUSE_MS = const(5000)  # after memory was too short, or the flash has failed


class Updates:
    """The updates of one board.

    client   not started yet. It needs room for one more subscription, and a `tx_size` of 800
    base     bytes: what the board's topics begin with, such as b"dev/pico-1/"
    board    str: the kind of board that a version must be made for, as `flatmq boards` has it
    key      int: the modulus of the RSA key that signs, whose exponent is 65,537
    groups   bytes: names of groups that the board belongs to
    healthy  called until it returns True: whether a new version does its work. OSError and
             MemoryError are like False
    ready    called every five seconds before an update begins: returns "", or the reason not to,
             such as "on battery"
    minutes  within which a new version must have proved itself
    reset    resets the board; by default `machine.reset`
    folder   where the slots are; "" on a board

    ValueError if `tx_size` is too small. A new version whose program does not call `poll` at least
    every 8 s is reset by a watchdog.
    """

    def __init__(
        self,
        client: "Client",
        base: bytes,
        board: str,
        key: int,
        *,
        groups: "tuple[bytes, ...]" = (),
        healthy: "Callable[[], bool] | None" = None,
        ready: "Callable[[], str] | None" = None,
        minutes: int = 5,
        reset: "Callable[[], None] | None" = None,
        folder: str = "",
    ) -> None:
        client.no_room(_ROOM, 1)
        if reset is None:
            import machine

            reset = machine.reset  # type: ignore[attr-defined,unused-ignore]
        self.client = client
        self.board = board
        self.key = key
        self.groups = groups
        self.folder = folder
        self.record = slots.load(folder)
        self.base = base
        self.reset: Any = reset
        self.ready = ready
        self._healthy = healthy
        self._piece = base + b"ota/piece"
        self._status = base + b"ota/status"
        self._topics = [base + b"ota/manifest"]
        for group in groups:
            self._topics.append(b"group/" + group + b"/ota/manifest")
        self._topics.append(self._piece)
        client.subscribe(self._topics, self._on_message, 1, True)
        self._lost = False  # there was no memory for a manifest
        self._source = 0  # the topic of a manifest that comes in,
        self._text: Any = None  # and what has come of it
        self._whole: dict[int, bytes] = {}  # the manifest that came last for each topic
        self.seen = [0] * len(self._topics)  # checksums: they come again with each connection
        self.sink: Any = None  # takes the pieces
        self.work: Any = None  # a generator, while there is something to do,
        self.origin = 0  # the topic of its manifest,
        self.counter = 0  # and what that says
        self.state = ""  # of an update, for the status
        self.why = ""
        self.to = ""  # its version
        self.about = 0  # the checksum of its manifest
        # A version that is new, or has ended in exceptions, is to be proved.
        self._unproved = self.record["state"] == "new" or self.record["crashes"] > 0
        self._pid: int | None = None  # of the status that must be acknowledged
        self._began = self.due = port.ticks_ms()
        self._ms = minutes * 60000
        self._said = 0  # the connection on which the status was published

    def poll(self) -> None:
        """Do what is due. Nothing takes long, but the check of a signature blocks.

        What memory is too short for, or the flash does not take, is tried again after a pause.
        """
        if slots.watchdog:
            slots.watchdog.feed()
        if ticks_diff(port.ticks_ms(), self.due) < 0:
            return
        self.due = port.ticks_ms()
        try:
            if self._lost:  # the broker sends it again, even if it has kept the session
                self.client.subscribe(self._topics, self._on_message, 1, True)
                self._lost = False
                raise MemoryError  # for the pause
            if self._whole:
                self._begin(next(iter(self._whole)))
            if self.work:
                next(self.work, None)
            if self.client.connected and self._said != self.client.stats.connects:
                self._pid = self.tell()
            if self._unproved:
                self._prove()
        except (MemoryError, OSError):
            self.due = port.ticks_add(self.due, _PAUSE_MS)

    def tell(self, state: "str | None" = None, why: str = "") -> "int | None":
        """Publish the status, with another state of the update if one is given."""
        if state is not None:
            self.state, self.why = state, why[:120]
        self._said = 0  # without memory, `poll` publishes it
        from json import dumps
        from sys import version

        r = self.record
        status = {
            "board": self.board,
            "version": r["version"],
            "counter": r["counter"],
            "micropython": version,
            "state": self.state or r["state"],
            "to": self.to,
            "manifest": self.about,
            "why": self.why,
            "failed": r["failed"],
        }
        c: Any = self.client
        retain = not c.five or c.offers[_RETAIN]
        try:
            pid: int | None = c.publish(self._status, dumps(status), c.max_qos and 1, retain)
        except ValueError as error:  # it is too large for this broker, which does without
            print(error)
            pid = 0
        if pid is not None:
            self._said = c.stats.connects
        return pid

    def _on_message(self, message: "Message") -> None:
        if message.is_topic(self._piece):
            if self.sink:
                try:
                    self.sink.take(message)
                except OSError:
                    self.sink.failed = True
            return
        try:
            self._collect(message)
        except MemoryError:
            self._text = None
            self._lost = True

    def _collect(self, message):
        """Keep a part of a manifest."""
        if not message.offset:
            self._text = bytearray()
            self._source = 0
            while not message.is_topic(self._topics[self._source]):
                self._source += 1
        if self._text is None or len(self._text) + len(message) > _LARGEST:
            self._text = None
            return
        self._text.extend(message.payload)
        if message.last:
            self._whole[self._source] = bytes(self._text)
            self._text = None

    def _begin(self, source):
        """Handle a manifest, unless it was handled before."""
        text = self._whole[source]
        about = crc32(text)
        if about != self.seen[source]:
            if text:
                load("fetch", "ota.").begin(self, source, text, about)
            elif self.origin == source:
                load("fetch", "ota.").stop(self)
            self.seen[source] = about  # last: what memory is too short for is tried again
        self._whole.pop(source)

    def _prove(self) -> None:
        """Look whether a new version has proved itself, or had its time."""
        c, r = self.client, self.record
        acknowledged = self._pid is not None and c.connected and not c.awaits(self._pid)
        if r["state"] == "new" and ticks_diff(port.ticks_ms(), self._began) >= self._ms:
            if not r["why"]:  # else the reason could not be stored
                why = "not healthy" if acknowledged else "no acknowledgement"
                r["why"] = why if c.connected else "no connection"
                slots.store(r, self.folder)
            self.reset()
        elif acknowledged and (self._healthy is None or self._healthy()):
            r["state"] = "good"
            r["tries"] = r["crashes"] = 0
            r["why"] = ""
            slots.store(r, self.folder)
            self._unproved = False  # once it is on the flash
            self.tell()
