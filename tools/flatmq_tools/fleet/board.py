"""A simulated board: it does what a sketch of boards/ does, and what its plan says."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from flatmq import Client
from flatmq.message import Message
from flatmq.senml import Pack, label

from . import plan
from .link import Link
from .plan import Plan, Turn
from .truth import END, Boot

PACK_SIZE = 192  # bytes; a pack has some 130
PATIENCE = 10.0  # seconds that a reboot waits for acknowledgements, and a drop-out to be online
AGAIN = 0.005  # seconds to the next look while it waits
BACKLOG = 10.0  # seconds of readings that there is room for while the broker is away
FOREVER = 3_600_000  # ms
RETRY_MS = 250
RETRY_MAX_MS = 5000
BOOT = 0.2  # seconds that a board has no network after its start
TEMPERATURE = label(b"chip/temp", b"Cel")


class Board:
    """Board `number` of a fleet, called `name`. `loop` is the Loop that it lives in.

    `boots` is what it did. `boot_id` is that of its first boot; they count up.
    """

    def __init__(
        self,
        loop: Any,
        name: str,
        number: int,
        boot_id: int,
        rate: float,
        its_plan: Plan,
        login: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self._loop = loop
        self.name = name
        self._number = number
        self._rate = rate
        self._login = login
        base = f"dev/{name}/".encode()
        self._telemetry = base + b"telemetry"
        self._status = base + b"status"
        self._commands = base + b"cmd/#"
        self._clock = its_plan.clock
        self._phase = its_plan.phase / rate
        self._turns = its_plan.turns()
        self._turn: Turn | None = None  # the one that waits
        self._taken = 0  # readings, over all boots
        self._next_boot = boot_id
        self._began = 0.0  # the fleet, by the monotonic clock
        self._waits_since = 0.0
        self._held: tuple[int, bytes] | None = None
        self.boots: list[Boot] = []
        self.client: Client | None = None
        self.link: Link | None = None
        self.commands = 0  # received, and ignored
        self.over = False  # no reading comes any more
        self.closed = False
        self.timer = math.inf  # when the loop looks at the client next

    # From a start to its end

    def start(self, seconds: float = 0.0) -> None:
        """Boot with a new client, which cannot connect for this many seconds.

        The first client takes no readings before `measure`.
        """
        self.link = self._loop.link(self)
        self.link.down_until = time.monotonic() + seconds
        held = max(8, min(255, math.ceil(self._rate * BACKLOG) + 2))
        user, password = self._login
        self.client = client = Client(
            self.name,
            user=user,
            password=password,
            tx_size=held * (PACK_SIZE + len(self._telemetry)),
            rx_size=256,
            inflight=held,
            subscriptions=1,
            incoming=1,
            retry_ms=RETRY_MS,
            retry_max_ms=RETRY_MAX_MS,
            link=self.link,
            quiet=True,
        )
        client.set_will(self._status, b"offline", 1, True)
        client.subscribe(self._commands, self._on_command, 1)
        self.boot = Boot(self.name, self._next_boot, self._clock)
        self._next_boot += 1
        self._pack = Pack(self.name, self.boot.boot, PACK_SIZE)
        # What is not acknowledged, in the order in which it was published, which is that of the
        # acknowledgements [MQTT-4.6.0-2]: numbers of readings, negative for copies; 0 for status.
        self._flight: deque[int] = deque()
        self._told = 0  # the connection on which the status was published
        self._was = client.state
        self._asleep = False
        self.losing = seconds > 0  # on purpose
        client.start()
        self._poll()

    def measure(self, began: float) -> None:
        """Take readings from now on, by the monotonic clock."""
        self._began = began
        self.boots.append(self.boot)
        self._plan_next()

    def _end(self, why: str) -> None:
        boot = self.boot
        boot.end = why
        boot.unacknowledged = [n for n in self._flight if n > 0]

    # The loop calls

    def ready(self, events: int) -> None:
        """Handle a socket that is ready."""
        assert self.client is not None and self.link is not None
        self.link.ready(events)
        if self.client.poll(0) and self._was == "online":
            self._look()
        else:
            self._poll()

    def due(self) -> None:
        """Poll the client, as its time has come."""
        self.timer = math.inf
        if self.client is not None:
            self._poll()

    def tick(self) -> None:
        """Do the next turn of the plan."""
        turn = self._turn or next(self._turns, None)
        self._turn = None
        if turn is None or self.over:
            self.over = True
            return
        if turn.before and not self._happens(turn):
            self._turn = turn
            self._loop.at(time.monotonic() + AGAIN, self.tick)
            return
        if not turn.reading:
            self.over = True
            return
        self._read(turn.reading)
        self._plan_next()

    def _plan_next(self) -> None:
        self._loop.at(self._began + self._phase + self._taken / self._rate, self.tick)

    # What happens to it

    def _happens(self, turn: Turn) -> bool:
        """Do what the plan has before a reading; False while that has to wait.

        It waits until no packet is under way, so that it is known what arrived, unless the
        broker is away.
        """
        assert self.client is not None and self.link is not None
        now = time.monotonic()
        if self._flight or not self.client.connected:
            if not self._waits_since:
                self._waits_since = now
            if now - self._waits_since < PATIENCE:
                return False
        self._waits_since = 0.0
        if turn.before == plan.DROP_OUT:
            if self.client.connected:
                self.boot.drop_outs += 1
                self.losing = True
                self.link.cut(turn.outage)
                self._poll()
            return True
        self._end(turn.before)
        if turn.before == plan.STUCK:
            return True
        self._off()
        if turn.before == plan.REBOOT:
            self.start(BOOT)
            self.boots.append(self.boot)
        return True

    def _off(self) -> None:
        """Cut the power: the connection ends without a DISCONNECT."""
        assert self.link is not None
        self.link.close()
        self.client = self.link = None
        self._loop.changed(self, self._was, "offline")

    def _read(self, what: str) -> None:
        self._taken += 1
        boot = self.boot
        boot.readings += 1
        now = time.time()
        boot.began = boot.began or now
        boot.ended = now
        if what == plan.LOST:
            boot.lost.append(boot.readings)
            return
        pack = self._pack
        ms = int((now + self._clock) * 1000)
        pack.begin(boot.readings, ms // 1000)
        pack.number(TEMPERATURE, 2000 + (boot.readings * 7 + self._number * 13) % 500, 2)
        pack.time(ms % 1000, 3)
        if what == plan.HELD:
            self._held = (boot.readings, bytes(pack.payload()))
            return
        accepted = self._publish(boot.readings, pack.payload())
        if accepted and what == plan.TWICE and self._publish(-boot.readings, pack.payload()):
            boot.duplicated.append(boot.readings)
        if self._held:
            seq, payload = self._held
            self._held = None
            if self._publish(seq, payload) and accepted:
                boot.reordered.append(seq)
        if self._was == "online":
            assert self.client is not None
            self.client.flush()
            if self.client.state != "online":
                self._look()

    def _publish(self, seq: int, payload: bytes | memoryview) -> bool:
        """Publish a reading, or its copy where `seq` is negative; False without room."""
        assert self.client is not None
        if self.client.publish(self._telemetry, payload, 1) is None:
            if seq > 0:
                self.boot.no_room.append(seq)
            return False
        self._flight.append(seq)
        if seq > 0:
            self.boot.published += 1
        return True

    # The client

    def _on_command(self, message: Message) -> None:
        self.commands += 1

    def _poll(self) -> None:
        """Poll the client until it has nothing to do, and note when to poll it next."""
        assert self.client is not None and self.link is not None
        self.link.due_ms = 0
        while self.client.poll(FOREVER):
            pass
        due = time.monotonic() + self.link.due_ms / 1000
        if due < self.timer:
            self.timer = due
            self._loop.at(due, self._timed)
        self._look()

    def _timed(self) -> None:
        # An earlier one may have been set meanwhile; then this one is past its use.
        if time.monotonic() >= self.timer:
            self.due()

    def _look(self) -> None:
        """See what has become of the connection, and of what was published."""
        client = self.client
        assert client is not None
        for _ in range(len(self._flight) - client.pending):
            if self._flight.popleft() > 0:
                self.boot.acknowledged += 1
        state = client.state
        if state == "online":
            if self._was != "online":
                self.boot.connects += 1
                self.losing = False
            if self._told != self.boot.connects and not self._asleep:
                self._tell(b"online")
        elif self._was == "online":
            self.boot.again = sorted({*self.boot.again, *(n for n in self._flight if n > 0)})
            self.boot.losses += not self.losing
        if state != self._was:
            self._was, was = state, self._was
            self._loop.changed(self, was, state)
            if state != "online":
                self._poll()  # when it tries again

    def _tell(self, status: bytes) -> None:
        assert self.client is not None
        if self.client.publish(self._status, status, 1, True) is not None:
            self._told = self.boot.connects
            self._flight.append(0)
            self.client.flush()

    # The end

    def close(self, now: bool = False) -> bool:
        """Do one step of saying good-bye; return True when that is done.

        With `now`, do not wait for it.
        """
        client = self.client
        if self.closed or client is None:
            self.closed = True
            return True
        stuck = self.boot.end == plan.STUCK
        if not now:
            if self._flight or not client.connected:
                return False
            if not stuck and not self._asleep:
                self._asleep = True
                self._tell(b"asleep")
                return False
        if not stuck:
            self._end(END)
        client.disconnect(0)
        self._off()
        self.closed = True
        return True

    def stop(self) -> bool:
        """Take no readings from here on. Returns whether all of them had been taken."""
        was, self.over = self.over, True
        if self._held:
            self.boot.lost.append(self._held[0])
            self._held = None
        return was
