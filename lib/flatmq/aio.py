"""Use a client with asyncio: tasks publish and receive messages while `run` polls.

All rules of MQTT are in the client, `core`. This module waits for it, and queues received messages
until a task takes them.
"""

import asyncio

from . import Client as Core
from . import MQTTError
from .engine import HOLD
from .message import Message
from .port import MICROPYTHON, const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from . import aio_rare
    from .message import Subscription

_ITEMS = const(4)  # of a place in a queue
_BUSY = const(4)  # most ms between two polls while an acknowledgement is awaited

if MICROPYTHON:
    from asyncio import sleep_ms
    from io import BytesIO as copier

    class Turn(asyncio.Event):
        """An event that tasks await repeatedly, until the condition that they check holds.

        `await turn` allocates nothing, while `wait()` makes a generator each time. One object
        serves all tasks: nothing else runs between __iter__ and the first __next__.
        """

        waiting: "Any"  # the tasks, as in Event
        began = False
        _done = StopIteration()

        def wake(self):
            """Let all waiting tasks check again."""
            self.set()
            self.clear()

        def park(self):
            """Suspend the current task until `wake`, once it has yielded."""
            task: Any = asyncio.current_task()
            self.waiting.push(task)
            task.data = self.waiting  # cancel() removes the task from there

        def __iter__(self):
            self.began = False
            return self

        def __next__(self):
            if self.began:
                self._done.__traceback__ = None  # else it grows
                raise self._done
            self.began = True
            self.park()

    class Acknowledgement:
        """The awaitable that `publish` returns on a board, with the methods of a coroutine.

        The `client` reuses it after the wait, so that the next `publish` need not allocate
        one.
        """

        def __init__(self, client):
            self.pid: Any = 0  # at QoS 0, and None once the task has let others run
            self.client = client
            self.caller: Any = None  # the task that has called `publish`,
            self.task = None  # and the one that waits
            self._done = StopIteration()

        def __iter__(self):
            return self

        def __next__(self):
            client = self.client
            if self.pid == 0:
                self.pid = None
                # A loop that publishes must let other tasks run.
                next(sleep_ms(0))  # type: ignore[call-overload]
                return
            if self.pid and not self.task:
                client.publishing.append(self.caller)
                self.task = asyncio.current_task()
            if self.pid and client.waits(self.pid):
                client.turn.park()
                return
            e = self.close()
            if e is not None:
                raise e
            self._done.__traceback__ = None
            raise self._done

        def send(self, value):
            """Continue the wait, as asyncio does with a coroutine."""
            return self.__next__()

        def throw(self, e, *_):
            """End the wait with an exception.

            asyncio also throws into tasks that have ended; by then another task may be
            using this object.
            """
            if self.task is asyncio.current_task():
                self.close()
            raise e

        def close(self):
            """End the wait. Returns why the message is not acknowledged, None if it is."""
            e = None
            if self.task is not None:
                e = self.client.end(self.pid, self.caller)
                self.task = None
            self.client.spare.append(self)
            return e

    def acknowledgement(client: "Client", pid: int, task: "Any" = None) -> "Any":
        """Return an awaitable that waits until a message is acknowledged.

        The `task` that has called `publish` is the current one unless given.
        """
        made = client.spare.pop() if client.spare else Acknowledgement(client)
        made.pid = pid
        made.caller = task or asyncio.core.cur_task  # type: ignore[attr-defined]
        return made

else:
    from .aio_cpython import Turn, acknowledgement, copier, sleep_ms, taking


def late(name: str) -> "Any":
    """Return the method `name` of a client, whose code in `aio_rare` is loaded for each call.

    MemoryError if it cannot be loaded; then nothing has changed.
    """
    if not MICROPYTHON:
        return getattr(load("aio_rare", ""), name)

    def run(self, *arguments, **values):
        try:
            return getattr(load("aio_rare", ""), name)(self, *arguments, **values)
        finally:
            drop("aio_rare")

    return run


class Messages:
    """The messages of a subscription, for one task that takes them with `async for`.

    Up to `queue` messages wait here, in memory that is reused: a message is valid until the task
    asks for the next one. A message is acknowledged when it is queued.

    If the queue is full, a QoS 0 message is discarded and counted in `lost`. For a QoS 1 or 2
    message the client stops reading until there is room, so that none is lost; acknowledgements
    and other subscriptions wait meanwhile. If a `publish` that the task of this queue has called
    waits, the queue grows instead. Otherwise the task would wait for an acknowledgement that is
    stuck behind the message.

    The loop ends after `close()` or `client.disconnect()`, or when another `subscribe` or
    `unsubscribe` has ended the subscription, once all messages received before are taken. It
    raises MQTTError if the broker refuses the subscription, unless it has granted it before: then
    it is tried again, and `on_dropped` is called. A task that leaves the loop must call `close()`,
    or use `async with`. If the task ends without that, the subscription ends when the queue is
    full.
    """

    subscription: "Subscription"
    lost: int  # QoS 0 messages discarded because there was no room
    closed: bool  # the subscription has ended

    def __init__(self, client: "Client", queue: int) -> None:
        self.lost = 0
        self.closed = False
        self.client = client
        self.task: Any = None  # the one that takes the messages
        # A ring of places for messages. Each has four items: a buffer, and what `first`, `at` and
        # `end` of the message will be. `_first` and `_count` count items.
        self._ring: list[Any] = [0] * (queue * _ITEMS)
        for n in range(0, queue * _ITEMS, _ITEMS):
            self._ring[n] = bytearray(client.rx_size)
        self._first = self._count = 0
        # The message that the task has, in the exception that hands it to the task.
        self._found = StopIteration(Message(self._ring[0]))
        self._taken: Any = None  # it is the first one of the ring; None: nothing was granted yet

    def take(self, message: Message) -> "object | None":
        """Handle a message of the subscription. Returns HOLD if there is no room for it."""
        if self.closed:
            return None
        if self._count == len(self._ring):
            if self.task is not None and self.task.done():
                self.close()  # the task has ended without that
                return None
            if not message.first & 6:
                self.lost += 1
                return None
            if not self._grow():
                self.client.held = self
                return HOLD
        i = self._first + self._count
        if i >= len(self._ring):
            i -= len(self._ring)
        end = message.end - message.t
        self._ring[i + 1] = message.first
        self._ring[i + 2] = message.at - message.t
        self._ring[i + 3] = end
        if MICROPYTHON:
            copier = self.client.copier
            copier.seek(0)
            copier.write(message.buf, message.t, end)
            copier.seek(0)
            copier.readinto(self._ring[i], end)
        else:
            self._ring[i][0:end] = memoryview(message.buf)[message.t : message.end]
        self._count += _ITEMS
        self.client.moved = True
        return None

    def _grow(self):
        """Add a place if a `publish` of the task of this queue waits. Returns whether it did."""
        if self.task not in self.client.publishing:
            return False
        n = self._first
        try:
            self._ring[n:n] = [bytearray(self.client.rx_size), 0, 0, 0]
        except MemoryError:
            return False
        self._first += _ITEMS
        return True

    def close(self) -> None:
        """End the subscription."""
        if not self.closed:
            self.closed = True
            self.client.closing = True

    def __aiter__(self) -> "Messages":
        return self

    def __anext__(self) -> "Any":
        if self._taken:
            self._taken = False
            self._count -= _ITEMS
            self._first += _ITEMS
            if self._first == len(self._ring):
                self._first = 0
        self.task = asyncio.current_task()
        return self  # awaited by `async for`: a coroutine would be allocated for each message

    __iter__ = __aiter__

    def __next__(self) -> None:
        """Raise StopIteration with the next message, or have the task wait for it.

        On a board `await` calls this until it raises. It raises StopAsyncIteration at the end,
        MQTTError if the subscription was refused, or the exception that ended `run`.
        """
        if self._count:
            self._taken = True
            n = self._first
            message = self._found.value
            message.buf = self._ring[n]
            message.first = self._ring[n + 1]
            message.at = self._ring[n + 2]
            message.end = self._ring[n + 3]
            self._found.__traceback__ = None  # else it grows
            raise self._found
        if self.closed or self.client.disconnected:
            raise StopAsyncIteration
        if self.client.failed is not None:
            raise self.client.failed
        granted = self.subscription.granted
        if granted and self._taken is None:  # what is refused later is tried again
            if max(granted) > 127:
                load("aio_rare", "").refused(self.subscription)
            self._taken = False
        self.client.turn.park()

    if not MICROPYTHON:

        def __await__(self) -> "Generator[Any, Any, Any]":
            return taking(self, self.client.turn)

    async def __aenter__(self) -> "Messages":
        return self

    async def __aexit__(self, *error: "Any") -> None:
        self.close()


class Client:
    """An MQTT client for asyncio.

    It takes the arguments of `flatmq.Client`. That client is `core`; what this class does not
    define, such as `stats`, `error` and `set_will`, is that client's.

    Nothing is sent or received unless `run` runs in a task of its own; `async with` starts and
    ends that task. Any number of tasks of the same event loop may make all other calls, and each
    may be cancelled. Cancelling `publish` does not withdraw an accepted message.

    Handlers passed to `subscribe` are called by `run`. An exception from one is raised by `run`
    and by every call that waits; the message is delivered again after the next `run()`.
    """

    if TYPE_CHECKING:
        subscribe = aio_rare.subscribe
        unsubscribe = aio_rare.unsubscribe
        disconnect = aio_rare.disconnect
        __aenter__ = aio_rare.__aenter__
        __aexit__ = aio_rare.__aexit__
    else:
        subscribe = late("subscribe")
        unsubscribe = late("unsubscribe")
        disconnect = late("disconnect")
        __aenter__ = late("__aenter__")
        __aexit__ = late("__aexit__")

    # Set by `run` or before they are read
    held: "Messages | None"  # the queue for which the client keeps a message
    moved: bool  # a queue has taken a message
    runner: "Any"  # the task started by `async with`

    def __init__(self, *args: "Any", **options: "Any") -> None:
        core: Any = Core(*args, **options)
        self.core = core
        self._on_dropped = core.on_dropped
        core.on_dropped = self._note
        self.turn: Any = Turn()  # wakes tasks after a poll in which something happened
        # Messages are copied through a file: slices would be allocated.
        self.copier: Any = copier(self.rx_size)
        self.publishing: list[Any] = []  # tasks that have called a `publish` that waits
        self.spare: list[Any] = []  # Acknowledgement objects not in use
        self.closing = False  # a queue was closed but is still subscribed
        self.disconnected = False  # `disconnect` was called
        self.failed: Any = None  # the exception that ended `run`
        self.queues: list[Messages] = []  # with a subscription
        self.running = False
        self._accept = core.publish
        self._room = asyncio.Lock()  # its holder is the next task to get room to publish
        # Errors for messages that were set aside: tasks may wait for them later, or never.
        self._dropped: list[MQTTError] = []
        self._most = core.inflight  # of them, besides those that tasks wait for

    def __getattr__(self, name: str) -> "Any":
        if name == "core":  # its constructor has failed
            raise AttributeError(name)
        if name == "rx_size":  # an attribute would take another step of the table of attributes
            return len(self.core.rx) // 2 - 1
        return getattr(self.core, name)

    async def run(self, idle_ms: int = 20) -> None:
        """Connect, poll, and reconnect after each loss, until `disconnect` or cancellation.

        After a cancellation the connection stays open, and another `run` continues.

        Between polls it sleeps: not at all after a poll in which something came in, then longer
        and longer, up to `idle_ms`; at most 4 ms while a message waits for its acknowledgement.
        A name lookup blocks the event loop. RuntimeError if it is running already. An exception
        from a handler ends it.
        """
        if self.running:
            raise RuntimeError("run() is running already")
        core = self.core
        self.running = True
        self.disconnected = online = False
        self.failed = None
        ms = 0
        try:
            core.start()
            while not self.disconnected:
                if self.closing:
                    try:  # noqa: SIM105 (there is no contextlib on a board)
                        load("aio_rare", "").leave(self)
                    except MemoryError:  # the next poll tries it again
                        pass
                    drop("aio_rare")
                self.held = None
                self.moved = False
                moved = core.poll() or self.moved
                if moved or online != core.connected:
                    online = core.connected
                    ms = 0
                    self.turn.wake()
                else:
                    ms = min(ms * 2 or 1, idle_ms)
                    if core.connected and (core.pending or self.held is not None):
                        ms = min(ms, _BUSY)
                    if self._room.locked():
                        self.turn.wake()  # sending may have made room
                await sleep_ms(ms)
        except Exception as e:
            self.failed = e
            raise
        finally:
            self.running = False
            self.turn.wake()

    async def connected(self) -> None:
        """Wait until the broker has accepted the connection.

        MQTTError if it refuses from now on; `run` keeps trying.
        """
        core = self.core
        last = core.error
        while not core.connected:
            self._check()
            e = core.error
            if e is not None and e is not last and e.kind == "refused":
                raise e
            await self.turn

    async def lost(self) -> None:
        """Wait until there is no connection."""
        while self.core.connected:
            self._check()
            await self.turn

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> "Any":
        """Publish a message: `await publish(...)`.

        Waits for room if there is none, and at QoS 1 and 2 until the broker has
        acknowledged the message, across reconnects.

        The result can be awaited once, or passed to `create_task`, `gather` or `wait_for`. If
        there is room, the call itself accepts the message; else tasks get room in the order in
        which they began to wait. Allocates nothing if there is room, the topic is bytes and the
        payload is bytes or another buffer.

        ValueError and TypeError as from `flatmq.Client.publish`; MQTTError of kind "dropped" if
        the message was set aside (see `give_up`), with its packet identifier in `code`, and of
        kind "closed" after `disconnect`. Messages not acknowledged by then are kept for the next
        `run`.
        """
        self._check()
        pid = None
        # The parentheses save a word: a method call would put the frame on the heap.
        if not self._room.locked():
            pid = (self._accept)(topic, payload, qos, retain)
        if pid is None:
            # A tuple, too: so many arguments would put the frame on the heap.
            return (self._publish)((topic, payload, qos, retain), asyncio.current_task())
        self._error(pid)  # of an earlier message
        self.core.flush()
        return acknowledgement(self, pid)

    async def _publish(self, message, task):
        """Publish a message of a task as soon as there is room."""
        topic, payload, qos, retain = message
        self.publishing.append(task)
        try:
            async with self._room:
                while True:
                    pid = self.core.publish(topic, payload, qos, retain)
                    if pid is not None:
                        break
                    await self.turn
                    self._check()
                    self.core.flush()
        finally:
            self.publishing.remove(task)
        self._error(pid)
        self.core.flush()
        await acknowledgement(self, pid, task)

    def waits(self, pid: int) -> bool:
        """Return whether an acknowledgement may still come."""
        if self.disconnected or self.failed is not None:
            return False
        return self.core.awaits(pid)

    def end(self, pid: int, task: "Any") -> "Any":
        """Note that a task waits no longer.

        Returns why its message is not acknowledged, or None if it is.
        """
        self.publishing.remove(task)
        return self._error(pid) or (self._ended() if self.core.awaits(pid) else None)

    def _error(self, pid):
        """Return the error for a message that was set aside, and forget it."""
        for e in self._dropped:
            if e.code == pid:
                self._dropped.remove(e)
                return e

    def _ended(self):
        """Return the exception that ended `run`; None if it is running or was cancelled."""
        if self.failed is None and self.disconnected:
            return MQTTError("closed", "disconnect() was called")
        return self.failed

    def _check(self):
        """Raise the exception that ended `run`, if any."""
        e = self._ended()
        if e is not None:
            raise e

    def _note(self, pid, topic, reason):
        """Note that the client has set a message aside."""
        if pid:
            dropped = self._dropped
            dropped.append(MQTTError("dropped", reason, pid))
            if len(dropped) > self._most + len(self.publishing):
                dropped.pop(0)
        if self._on_dropped is not None:
            self._on_dropped(pid, topic, reason)
