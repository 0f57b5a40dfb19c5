"""Connect and reconnect: lookup, TCP, CONNECT, CONNACK, keep alive, and the wait between tries.

This module allocates memory: for the lookup, the socket, errors, and the generators of a
connection.
"""

import errno
import random

from . import port as clock
from . import writer
from .errors import MQTTError
from .port import collect, const, ticks_add, ticks_diff
from .reader import reading
from .v5_client import silent

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .v5_client import Client

_BY_PEER = (errno.ECONNRESET, errno.ECONNABORTED, 32)  # EPIPE, a name that boards lack
_NEVER = const(268435455)  # ms, 3 days
# Made in advance, while there is memory.
_NO_MEMORY = MQTTError("resource", "no memory to load a module of flatmq")
_LOOK_UP = const(4)  # failed tries after which the name is looked up again
_SOON = const(20)  # ms until a request that found no room is tried again
_STEADY = const(10000)  # ms online after which the wait before a reconnect is short again


def start(self: "Client") -> None:
    """Begin to connect. `poll` does the rest, and reconnects after each loss."""
    if self.state == "offline":
        if not self.connection:
            self.connection = Connection(self)
        self.connection.start()


def ping(self: "Client") -> None:
    """Send a PINGREQ.

    The connection ends if nothing comes in for `timeout` seconds, or for three quarters of the
    keep alive if that is shorter.
    """
    if self.connected and not self.asked:
        self.connection.ping()


def wait(self: "Client", timeout_ms: int) -> bool:
    """Poll until `pending` is 0, for at most `timeout_ms`. Returns whether it is."""
    end = ticks_add(clock.ticks_ms(), timeout_ms)
    while self.pending:
        left = ticks_diff(end, clock.ticks_ms())
        if left <= 0:
            return False
        self.flush()
        if self.pending:
            self.poll(left)
    return True


class Connection:
    """The connection of a `client` over its link. `stream` is None while there is none."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.stream: Any = None
        self._timeout = client.options["timeout"] * 1000
        # ms without a packet until PINGREQ; a quarter of the keep alive is left for its journey.
        self.interval = client.options["keepalive"] * 750 or _NEVER
        self._delay = client.options["retry_ms"]  # before the next try
        self._tries = 0
        self.make()
        self.ms = 0  # ms to wait for incoming bytes
        self._since = 0  # when the connection was accepted
        self._asked = 0  # when the last PINGREQ was queued

    def make(self) -> None:
        """Make the generators.

        Once, because a connection lost for lack of memory must not need more; and again
        after Ctrl-C, which ends the generator that it interrupts.
        """
        self._dial = self.dialing()
        self.silent = silent()
        self._pause = self.pausing()

    def dialing(self) -> "Iterator[bool | None]":
        """Connect, step by step, once the client's `due` has passed."""
        c = self.client
        link = c.link
        while True:
            while ticks_diff(c.now, c.due) < 0:
                yield None
            what = "lookup"
            try:
                if link.address is None:
                    c.state = "resolving"
                    yield None
                    link.resolve()
                what = "connect"
                c.state = "connecting"
                c.due = ticks_add(clock.ticks_ms(), self._timeout)
                link.connect()
                while True:
                    self.stream = link.stream()
                    if self.stream:
                        break
                    yield None
                    if ticks_diff(c.now, c.due) >= 0:
                        break
                if self.stream:
                    self.greet()
                else:
                    self.lost(None, "timeout", "connecting")
            except Exception as e:
                self.stream = None
                self.lost(e, "resource" if what == "lookup" else "closed", what)
            yield True

    def greet(self, handler: "Any" = None) -> None:
        """Start to send CONNECT over the stream and to read the answer.

        `handler`: see `reading`.
        """
        c = self.client
        hello: Any = c.hello
        if hello is None:
            from .setup import hello_of

            hello = hello_of(c.options, True)
        c.state = "greeting"
        c.outgoing = writer.writing(c, self.stream.write, hello)
        c.incoming = reading(c, self.stream.readinto, self.greeted, handler)
        c.queued = True
        c.asked = False

    def greeted(self, flags: int, code: int) -> "str | None":
        """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
        c = self.client
        version = c.options["version"]
        clean = c.options["clean_session"]
        if c.state != "greeting":
            return "a second CONNACK"
        if version != 3 and (flags > 1 or (flags and (clean or code))):
            return "flags"
        if code:
            self.lost(None, "refused", f"CONNACK: return code {code}", code)
            return None
        c.session_present = version != 3 and flags == 1
        router = c.router
        if router and (router.subscriptions or router.requests):
            collect()  # see calls
            from .requests import resume
        # If the gate raises, or memory is short, the next poll handles this CONNACK again.
        # MQTT 3.1 has no session present flag: without clean_session it is assumed to be kept.
        writer.resume(c, c.session_present or (version == 3 and not clean))
        c.stats.connects += 1
        c.error = None
        c.state = "online"
        c.connected = True
        c.due = ticks_add(c.now, min(self.interval, _STEADY))
        c.wrote = self._since = c.now
        if router:
            router.done = router.message.offset = router.message.size = 0
            if router.subscriptions or router.requests:
                resume(router, c.session_present)
        return None

    def wait(self, ms: int) -> None:
        """Wait for incoming bytes up to `ms` milliseconds, but not past the client's `due`."""
        c = self.client
        self.ms = ms
        if c.state != "offline":
            self.ms = min(ms, ticks_diff(c.due, c.now))
            if self.ms <= 0:
                return
        e = next(self._pause)
        if isinstance(e, Exception):
            self.lost(e, "closed", "wait")
        elif e is not None:
            raise e

    def pausing(self) -> "Iterator[BaseException | None]":
        """Let the link wait at each step, and yield the exception that it raised.

        In a function, catching an exception by name would put the frame on the heap.
        """
        c = self.client
        while True:
            try:
                c.link.wait(self.ms, c.blocked or c.state == "connecting")
            except BaseException as e:
                yield e
            else:
                yield None

    def late(self) -> None:
        """Do what is due by the clock: keep alive, and the deadline for CONNACK."""
        c = self.client
        if c.state == "greeting":
            self.lost(None, "timeout", "greeting")
        if not c.connected:
            return
        if c.router and c.router.waiting:
            from .requests import send

            send(c.router)
        left = self._timeout - ticks_diff(c.now, c.wrote)
        if left <= 0 or not (c.large and c.large.sending):
            # Else PINGREQ waits for the end of the message: bytes that leave show life, too.
            if c.asked:
                left = min(self._timeout, self.interval) - ticks_diff(c.now, self._asked)
                if left <= 0:
                    self.lost(None, "timeout", "PINGRESP")
                    return
            else:
                if ticks_diff(c.now, self._since) >= min(self.interval, _STEADY):
                    self._tries = 0
                    self._delay = c.options["retry_ms"]
                left = max(ticks_diff(c.now, c.wrote), ticks_diff(c.now, c.heard))
                left = self.interval - left
        if left > 0:
            self._due_in(left)
        elif self.interval != _NEVER:
            self.ping()

    def _due_in(self, ms):
        c = self.client
        if c.router and c.router.waiting:
            ms = min(ms, _SOON)
        c.due = ticks_add(c.now, ms)

    def ping(self) -> None:
        """Queue a PINGREQ, and set the deadline for its answer."""
        c = self.client
        if c.answers <= c.room:  # else bytes wait to go out, which serve just as well
            c.answer(0xC0)
        c.asked = True
        c.now = self._asked = clock.ticks_ms()
        self._due_in(min(self._timeout, self.interval))

    def close(self) -> None:
        """Close the link, and stop using the generators of the connection."""
        c = self.client
        self.stream = None
        c.connected = False
        if c.open:
            c.open = None  # until `writer.lost` has done the rest
        c.outgoing = self.silent
        # After Ctrl-C in the middle of `lost` the client still reconnects.
        c.incoming = self._dial if c.state == "waiting" else self.silent
        try:  # noqa: SIM105 (there is no contextlib on a board)
            c.link.close()
        except Exception:
            pass

    def start(self) -> None:
        """Begin to connect."""
        c = self.client
        c.state = "waiting"
        c.due = clock.ticks_ms()
        c.incoming = self._dial

    def lost(self, error: "Any", kind: str, what: str, code: int = 0) -> None:
        """Handle a connection that ended or could not be made: try again later.

        `error` is the exception, 0 for the end of the stream; `what` says what was being
        done, or what the peer did.

        `error` is the first argument because a generator's stack keeps the arguments of a call
        until others overwrite them: as the last one, an exception would be held while the client
        lives.
        """
        c = self.client
        closed = c.open is True
        c.state = "waiting"
        self.close()
        try:
            from .show import explained

            c.error = explained(kind, what, error, code, c)
        except Exception:
            c.error = _NO_MEMORY
        c.stats.losses += 1
        self._tries += 1
        if self._tries % _LOOK_UP == 0:
            c.link.address = None
        self.start()
        half = self._delay // 2
        c.due = ticks_add(c.due, half + (half * random.getrandbits(8) >> 8))
        self._delay = min(self._delay * 2, c.options["retry_max_ms"])
        # Only these errors prove that the peer closed the connection.
        closed = (
            closed and kind == "closed" and (error == 0 or getattr(error, "errno", 0) in _BY_PEER)
        )
        router = c.router
        try:
            writer.lost(c, closed)
            if router and (router.past or (closed and router.requests)):
                from .refused import lost

                lost(router, closed)
        except Exception:
            c.error = _NO_MEMORY  # the next connection makes up for what failed here
