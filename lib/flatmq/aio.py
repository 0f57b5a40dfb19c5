"""Use a client with asyncio: tasks publish and receive messages while `run` polls.

All rules of MQTT are in the client, `core`. This module waits for it, and queues received messages
until a task takes them.
"""

import asyncio

from . import Client as Core
from . import MQTTError
from .engine import HOLD
from .message import Message
from .port import MICROPYTHON, const, drop, ticks_add, ticks_diff, ticks_ms

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from .message import Subscription

_BUSY = const(4)  # most ms between two polls while an acknowledgement is awaited

if MICROPYTHON:
    from asyncio import sleep_ms
    from io import BytesIO

    class Turn(asyncio.Event):
        """An event that tasks await repeatedly, until the condition that they check holds.

        `await turn` allocates nothing, while `wait()` makes a generator each time. One object
        serves all tasks: nothing else runs between __iter__ and the first __next__.
        """

        waiting: "Any"  # the tasks, as in Event
        _begun = False
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
            self._begun = False
            return self

        def __next__(self):
            if self._begun:
                self._done.__traceback__ = None  # else it grows
                raise self._done
            self._begun = True
            self.park()

    class Copier:
        """Copy bytes without slices, which would allocate."""

        def __init__(self, size):
            self._file = BytesIO(size)

        def copy(self, buf, at, n, into):
            """Copy `n` bytes from position `at` on to the start of `into`."""
            f = self._file
            f.seek(0)
            f.write(buf, at, n)
            f.seek(0)
            f.readinto(into, n)

    class Acknowledgement:
        """The awaitable that `publish` returns on a board, with the methods of a coroutine.

        The `client` reuses it after the wait, so that the next `publish` need not allocate
        one.
        """

        def __init__(self, client):
            self.packet_id = 0
            self._client = client
            self._task = None  # the task that waits
            self.passed = False  # a task has let others run, at QoS 0
            self._done = StopIteration()

        def __iter__(self):
            return self

        def __next__(self):
            client = self._client
            if not (self.packet_id or self.passed):
                self.passed = True
                # A loop that publishes must let other tasks run.
                next(sleep_ms(0))  # type: ignore[call-overload]
                return
            if self._task is None:
                task = asyncio.current_task()
                if client.begin(self.packet_id, task):
                    self._task = task
            if self._task is not None and client.waits(self.packet_id):
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
            if self._task is asyncio.current_task():
                self.close()
            raise e

        def close(self):
            """End the wait. Returns why the message is not acknowledged, None if it is."""
            e = None
            if self._task is not None:
                e = self._client.end(self.packet_id, self._task)
                self._task = None
            self._client.spare.append(self)
            return e

    def acknowledgement(client: "Client", packet_id: int) -> "Any":
        """Return an awaitable that waits until a message is acknowledged."""
        made = client.spare.pop() if client.spare else Acknowledgement(client)
        made.packet_id = packet_id
        made.passed = False
        return made

else:
    from .aio_cpython import Copier, Turn, acknowledgement, sleep_ms, taking


class Messages:
    """The messages of a subscription, for one task that takes them with `async for`.

    Up to `queue` messages wait here, in memory that is reused: a message is valid until the task
    asks for the next one. A message is acknowledged when it is queued.

    If the queue is full, a QoS 0 message is discarded and counted in `lost`. For a QoS 1 or 2
    message the client stops reading until there is room, so that none is lost; acknowledgements
    and other subscriptions wait meanwhile. If the task of this queue itself waits in `publish`,
    the queue grows instead. Otherwise the task would wait for an acknowledgement that is stuck
    behind the message.

    The loop ends after `close()` or `client.disconnect()`, or when another `subscribe` or
    `unsubscribe` has ended the subscription, once all messages received before are taken. It
    raises MQTTError if the broker refused the subscription. A task that leaves the loop must call
    `close()`, or use `async with`. If the task ends without that, the subscription ends when the
    queue is full.
    """

    subscription: "Subscription"
    lost: int  # QoS 0 messages discarded because there was no room
    closed: bool  # the subscription has ended

    def __init__(self, client: "Client", queue: int) -> None:
        self.lost = 0
        self.closed = False
        self._client = client
        self._task: Any = None  # the task that takes the messages
        # A ring of messages, each in the exception that hands it to the task. `_taken`: the task
        # has the first.
        self._ring = [self._place() for _ in range(queue)]
        self._first = self._count = 0
        self._taken = False

    def _place(self):
        return StopIteration(Message(bytearray(self._client.rx_size)))

    def take(self, message: Message) -> "object | None":
        """Handle a message of the subscription. Returns HOLD if there is no room for it."""
        if self.closed:
            return None
        if self._count == len(self._ring):
            if self._abandoned():
                return None
            if not message.first & 6:
                self.lost += 1
                return None
            if not self._grow():
                return self._client.hold(self)
        i = self._first + self._count
        if i >= len(self._ring):
            i -= len(self._ring)
        self._put(message, self._ring[i].value)
        self._count += 1
        self._client.moved = True
        return None

    def _put(self, message, place):
        at = message.t
        place.first = message.first
        place.at = message.at - at
        place.end = message.end - at
        self._client.copier.copy(message.buf, at, place.end, place.buf)

    def _grow(self):
        """Add a place if the task of this queue waits in `publish`. Returns whether it did."""
        if self._task not in self._client.publishing:
            return False
        try:
            self._ring.insert(self._first, self._place())
        except MemoryError:
            return False
        self._first += 1
        return True

    def _abandoned(self):
        """Return whether the queue is closed. Closes it if its task has ended."""
        if self._task is not None and self._task.done():
            self.close()
        return self.closed

    def close(self) -> None:
        """End the subscription."""
        if not self.closed:
            self.closed = True
            self._client.closing = True

    def _next(self):
        """Return the StopIteration with the next message, None to wait for it.

        Raises StopAsyncIteration at the end, MQTTError if the subscription was refused, or
        the exception that ended `run`.
        """
        if self._count:
            self._taken = True
            return self._ring[self._first]
        if self.closed or self._client.disconnected:
            raise StopAsyncIteration
        if self._client.failed is not None:
            raise self._client.failed
        granted = self.subscription.granted
        if granted and max(granted) > 127:
            text = f"SUBACK: reason code {max(granted):#x} for {self.subscription.filters}"
            raise MQTTError("refused", text, max(granted))
        return None

    def __aiter__(self) -> "Messages":
        return self

    def __anext__(self) -> "Any":
        if self._taken:
            self._taken = False
            self._count -= 1
            self._first += 1
            if self._first == len(self._ring):
                self._first = 0
        self._task = asyncio.current_task()
        return self  # awaited by `async for`: a coroutine would be allocated for each message

    def __iter__(self) -> "Messages":
        return self

    def __next__(self) -> None:
        # On a board `await` calls this until it raises.
        found = self._next()
        if found is not None:
            found.__traceback__ = None  # else it grows
            raise found
        self._client.turn.park()

    if not MICROPYTHON:

        def __await__(self) -> "Generator[Any, Any, Any]":
            return taking(self._next, self._client.turn)

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

    def __init__(self, *args: "Any", **options: "Any") -> None:
        self.core: Any = Core(*args, **options)
        self.rx_size = len(self.core.rx) // 2 - 1
        self._on_dropped = self.core.on_dropped
        self.core.on_dropped = self._note
        self.turn: Any = Turn()  # wakes tasks after a poll in which something happened
        self.copier = Copier(self.rx_size)
        self.publishing: list[Any] = []  # tasks that wait in `publish`
        self.spare: list[Any] = []  # Acknowledgement objects not in use
        self.held: Any = None  # the queue for which the client keeps a message
        self.moved = False  # a queue has taken a message
        self.closing = False  # a queue was closed but is still subscribed
        self.disconnected = False  # `disconnect` was called
        self.failed: Any = None  # the exception that ended `run`
        self._queues: list[Messages] = []
        self._accept = self.core.publish
        self._packet_id: int | None = None  # of the message accepted last
        self._room = asyncio.Lock()  # its holder is the next task to get room to publish
        self._awaited: list[int] = []  # packet identifiers that tasks wait for
        self._dropped: list[MQTTError] = []  # errors for those of them that were set aside
        self._running = False
        self._runner: Any = None  # the task started by `async with`

    def __getattr__(self, name: str) -> "Any":
        if name == "core":  # its constructor has failed
            raise AttributeError(name)
        return getattr(self.core, name)

    def hold(self, queue: "Messages") -> "object":
        """Let the client keep the message being delivered, for the next poll."""
        self.held = queue
        return HOLD

    async def run(self, idle_ms: int = 20) -> None:
        """Connect, poll, and reconnect after each loss, until `disconnect` or cancellation.

        After a cancellation the connection stays open, and another `run` continues.

        Between polls it sleeps: not at all after a poll in which something came in, then longer
        and longer, up to `idle_ms`; at most 4 ms while a message waits for its acknowledgement.
        A name lookup blocks the event loop. RuntimeError if it is running already. An exception
        from a handler ends it.
        """
        if self._running:
            raise RuntimeError("run() is running already")
        core = self.core
        self._running = True
        self.disconnected = online = False
        self.failed = None
        ms = 0
        try:
            core.start()
            while not self.disconnected:
                if self.closing:
                    self._unsubscribe()
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
            self._running = False
            self.turn.wake()

    async def connected(self) -> None:
        """Wait until the broker has accepted the connection.

        MQTTError if it refuses; `run` keeps trying.
        """
        core = self.core
        while not core.connected:
            self._check()
            if core.error is not None and core.error.kind == "refused":
                raise core.error
            await self.turn

    async def lost(self) -> None:
        """Wait until there is no connection."""
        while self.core.connected:
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
        self._packet_id = None
        # The parentheses save a word: a method call would put the frame on the heap.
        if not self._room.locked():
            self._packet_id = (self._accept)(topic, payload, qos, retain)
        if self._packet_id is None:
            return (self._publish)(topic, payload, qos, retain)
        self.core.flush()
        return acknowledgement(self, self._packet_id)

    async def _publish(self, topic, payload, qos, retain):
        """Publish a message as soon as there is room."""
        task = asyncio.current_task()
        self.publishing.append(task)
        try:
            async with self._room:
                while True:
                    packet_id = self.core.publish(topic, payload, qos, retain)
                    if packet_id is not None:
                        break
                    await self.turn
                    self._check()
                    self.core.flush()
        finally:
            self.publishing.remove(task)
        self.core.flush()
        await acknowledgement(self, packet_id)

    def begin(self, packet_id: int, task: "Any") -> bool:
        """Note that a task waits for an acknowledgement. Returns whether there will be one."""
        if packet_id:
            self.publishing.append(task)
            self._awaited.append(packet_id)
        return packet_id != 0

    def waits(self, packet_id: int) -> bool:
        """Return whether an acknowledgement may still come."""
        if self.disconnected or self.failed is not None:
            return False
        return self.core.awaits(packet_id)

    def end(self, packet_id: int, task: "Any") -> "Any":
        """Note that a task waits no longer.

        Returns why its message is not acknowledged, or None if it is.
        """
        self.publishing.remove(task)
        self._awaited.remove(packet_id)
        for e in self._dropped:
            if e.code == packet_id:
                self._dropped.remove(e)
                return e
        return self._ended() if self.core.awaits(packet_id) else None

    def subscribe(
        self,
        filters: "bytes | str | list[bytes] | list[str]",
        handler: "Callable[[Message], None] | None" = None,
        qos: int = 0,
        chunks: bool = False,
        queue: int = 4,
    ) -> "Any":
        """Subscribe to a topic filter, or to a list of them, at up to `qos`.

        Without a handler, returns `Messages` for use with `async for`, which holds up to `queue`
        messages, 1 to 255, of up to `rx_size` bytes. With a handler, returns the Subscription.
        Raises what `flatmq.Client.subscribe` raises.
        """
        if handler is not None:
            made = self.core.subscribe(filters, handler, qos, chunks)
            self._end()
            return made
        from .wire import number

        number("queue", queue, 1, 255)
        drop("wire")
        messages = Messages(self, queue)
        messages.subscription = self.core.subscribe(filters, messages.take, qos)
        self._end()
        self._queues.append(messages)
        return messages

    def unsubscribe(self, filters: "bytes | str | list[bytes] | list[str]") -> "Subscription":
        """End the subscription to one or more topic filters: see `flatmq.Client.unsubscribe`."""
        made = self.core.unsubscribe(filters)
        self._end()
        return made

    async def disconnect(self, timeout_ms: int = 1000) -> bool:
        """Send everything queued and DISCONNECT, and end `run`.

        Unacknowledged messages are kept for the next `run`. Returns whether DISCONNECT was
        sent; if not, the broker publishes the will.

        It takes up to `timeout_ms`. The wait for the broker to close the connection blocks the
        event loop, usually for one round trip.
        """
        core = self.core
        end = ticks_add(ticks_ms(), timeout_ms)
        while core.connected and ticks_diff(end, ticks_ms()) > 0:
            if not core.flush():
                break
            await sleep_ms(1)
        gone = core.disconnect(max(ticks_diff(end, ticks_ms()), 0))
        self.disconnected = True
        self.turn.wake()
        while self._running:
            await self.turn
        return gone

    async def __aenter__(self) -> "Client":
        self._runner = asyncio.create_task(self.run())
        while not (self._running or self._runner.done()):
            await sleep_ms(0)
        return self

    async def __aexit__(self, kind: "Any", *error: "Any") -> None:
        await self.disconnect()
        try:
            await self._runner
        except Exception:
            if kind is None:
                raise

    def _ended(self):
        """Return the exception that ended `run`; None if it is running or was cancelled."""
        if self.failed is None and self.disconnected:
            return MQTTError("closed", "disconnect() was called")
        return self.failed

    def _check(self):
        """Raise the exception that ended `run`, if any."""
        if self.failed is not None or self.disconnected:
            raise self._ended()

    def _note(self, packet_id, topic, reason):
        """Note that the client has set a message aside."""
        if packet_id in self._awaited:
            self._dropped.append(MQTTError("dropped", reason, packet_id))
        if self._on_dropped is not None:
            self._on_dropped(packet_id, topic, reason)

    def _unsubscribe(self):
        """End the subscriptions of the queues that were closed."""
        self.closing = False
        for each in self._queues:
            if each.closed:
                self.core.unsubscribe(each.subscription.filters)
        self._end()

    def _end(self):
        """Close the queues whose subscription has ended."""
        left = []
        for each in self._queues:
            if each.subscription in self.core.subscriptions:
                left.append(each)
            else:
                each.closed = True
        self._queues = left
        self.turn.wake()
