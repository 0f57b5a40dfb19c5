"""A run of a fleet: connect, take the readings, wait for what is under way, end."""

from __future__ import annotations

import gc
import itertools
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import ToolError
from ..trust import Trust
from .board import PATIENCE, Board
from .limits import raise_open_files
from .loop import Loop
from .plan import CALM, REBOOT, Plan, Troubles
from .truth import Boot

AT_ONCE = 64  # connections that are being made at a time: a broker's queue has room for so many
RAMP_PATIENCE = 20.0  # seconds in which at least one board more has to come online
GRACE = 30.0  # seconds after its time in which everything has to be acknowledged
STEP = 0.25  # seconds between two looks at how far it is


@dataclass
class Settings:
    """The settings of a fleet."""

    devices: int = 1000
    rate: float = 1.0
    """Readings a second of each board."""
    seconds: float = 30.0
    seed: int = 0
    prefix: str = "sim"
    troubles: Troubles = CALM
    user: str | None = None
    password: str | None = None
    trust: Trust | None = None
    """How the broker is verified; None for no TLS."""
    grace: float = GRACE

    @property
    def readings(self) -> int:
        """The number of readings of each board."""
        return int(self.rate * self.seconds + 1e-9)


@dataclass
class Figures:
    """The cost of a run; times in seconds."""

    connect: float = 0.0
    connect_cpu: float = 0.0
    run: float = 0.0
    run_cpu: float = 0.0
    late: float = 0.0
    """The maximum delay of the loop after a time that was set."""
    errors: dict[str, int] = field(default_factory=dict)
    """Why connections ended, and how often."""


class Fleet:
    """A fleet that publishes to `host` and `port`. Raises ToolError."""

    def __init__(self, host: str, port: int, settings: Settings) -> None:
        if settings.readings < 1:
            raise ToolError("not one reading: --rate times --seconds is below 1")
        raise_open_files(settings.devices)
        self.settings = settings
        self.figures = Figures()
        self.interrupted = False
        self._finished = False
        try:
            found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        except OSError as error:
            raise ToolError(f"{host}: no such host ({error})") from error
        address = min(found, key=lambda each: each[0] != socket.AF_INET)
        self._loop = Loop(address, host, port, settings.trust)
        self._loop.on_change = self._changed
        self._connecting: set[Board] = set()
        self._closed: set[Board] = set()  # boards whose handshake was closed
        self._mistake = ""  # what is wrong with TLS, if trying again is of no use
        first = random.Random(settings.seed).randrange(1, 1 << 29)
        digits = max(4, len(str(settings.devices)))
        login = (settings.user, settings.password)
        self._boards = [
            Board(
                self._loop,
                f"{settings.prefix}-{number:0{digits}}",
                number,
                first + number * 1000,
                settings.rate,
                Plan(settings.seed, number, settings.readings, settings.rate, settings.troubles),
                login,
            )
            for number in range(1, settings.devices + 1)
        ]

    @property
    def online(self) -> int:
        """The number of boards that are online."""
        return self._loop.online

    @property
    def boots(self) -> list[Boot]:
        """The boots so far."""
        return [boot for board in self._boards for boot in board.boots]

    @property
    def taken(self) -> int:
        """The number of readings so far."""
        return sum(boot.readings for board in self._boards for boot in board.boots)

    @property
    def complete(self) -> bool:
        """True if everything planned was done and everything published was acknowledged.

        What reboots lost while the broker was away does not count.
        """
        return self._finished and all(
            boot.published == boot.acknowledged or boot.end == REBOOT for boot in self.boots
        )

    def run(self, show: Callable[[str, float], None] = lambda what, share: None) -> None:
        """Run the fleet to its end; Ctrl-C ends it early.

        `show` is called several times per second with the current activity and how much of
        it is done, 0 to 1. Raises ToolError if not all boards come online at first.
        """
        try:
            self._connect(show)
            self._measure(show)
            self._close(show)
        finally:
            for board in self._boards:
                if board.link is not None:
                    board.link.close()
            self._loop.close()

    def _changed(self, board: Board, was: str, now: str) -> None:
        if now == "online":
            self._connecting.discard(board)
        client = board.client
        if now == "waiting" and client is not None and client.error and not board.losing:
            error = f"{client.error.kind}: {client.error.detail}"
            self.figures.errors[error] = self.figures.errors.get(error, 0) + 1
            if client.error.kind == "tls" and not client.error.code:
                self._mistake = str(client.error.detail)
            elif client.error.kind == "tls" and not self.online:
                # The network, or a broker that is too busy, may have closed the first one.
                if board in self._closed:
                    self._mistake = str(client.error.detail)
                self._closed.add(board)

    def _connect(self, show: Callable[[str, float], None]) -> None:
        began, cpu = time.monotonic(), time.process_time()
        waiting = iter(self._boards)
        best, heard = 0, began
        while self.online < len(self._boards):
            room = AT_ONCE - len(self._connecting)
            for board in itertools.islice(waiting, max(room, 0)):
                self._connecting.add(board)
                board.start()
            self._loop.turn(time.monotonic() + STEP)
            now = time.monotonic()
            if self.online > best:
                best, heard = self.online, now
            refused = self._refused()
            if refused or now - heard > RAMP_PATIENCE:
                why = refused or max(
                    self.figures.errors, key=self.figures.errors.__getitem__, default="no answer"
                )
                raise ToolError(f"{best:,} of {len(self._boards):,} boards came online: {why}")
            show("connecting", self.online / len(self._boards))
        self.figures.connect = time.monotonic() - began
        self.figures.connect_cpu = time.process_time() - cpu

    def _refused(self) -> str:
        """Return why the broker does not let a board in, or what is wrong with TLS; else ""."""
        if self._mistake:
            return self._mistake
        for board in self._connecting:
            if board.client and board.client.error and board.client.error.kind == "refused":
                return str(board.client.error.detail)
        return ""

    def _measure(self, show: Callable[[str, float], None]) -> None:
        # A collection looks at everything there is: most of it stays to the end.
        gc.collect()
        gc.freeze()
        self._loop.late = 0.0
        began, cpu = time.monotonic(), time.process_time()
        for board in self._boards:
            board.measure(began)
        end = began + self.settings.seconds
        # A reading that is late is taken all the same; a board that waits for its reboot, too.
        limit = end + PATIENCE + self.settings.grace
        try:
            next_show = began
            while True:
                self._loop.turn(min(next_show, limit))
                now = time.monotonic()
                if now >= next_show:
                    next_show = now + STEP
                    show("publishing", min(1.0, (now - began) / self.settings.seconds))
                    if now >= limit:
                        break
                    if now >= end and all(board.over for board in self._boards):
                        break
        except KeyboardInterrupt:
            self.interrupted = True
        self.figures.run = min(time.monotonic() - began, self.settings.seconds)
        self.figures.run_cpu = time.process_time() - cpu
        self.figures.late = self._loop.late
        gc.unfreeze()

    def _close(self, show: Callable[[str, float], None]) -> None:
        limit = time.monotonic() + self.settings.grace
        stopped = [board.stop() for board in self._boards]
        self._finished = all(stopped) and not self.interrupted
        left = list(self._boards)
        while left and time.monotonic() < limit:
            left = [board for board in left if not board.close()]
            if left:
                self._loop.turn(min(limit, time.monotonic() + 0.02))
                show("closing", 1 - len(left) / len(self._boards))
        for board in left:
            board.close(now=True)
