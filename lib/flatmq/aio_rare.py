"""The methods of `aio.Client` that are called rarely. Loaded for each call."""

import asyncio

from . import MQTTError
from .aio import Messages, sleep_ms
from .port import const, drop, ticks_add, ticks_diff, ticks_ms

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .aio import Client
    from .message import Message, Subscription


def subscribe(
    self: "Client",
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
        mark(self)
        return made
    from .wire import number

    number("queue", queue, 1, 255)
    drop("wire")
    messages = Messages(self, queue)
    messages.subscription = self.core.subscribe(filters, messages.take, qos)
    mark(self)
    self.queues.append(messages)
    return messages


def unsubscribe(
    self: "Client", filters: "bytes | str | list[bytes] | list[str]"
) -> "Subscription":
    """End the subscription to one or more topic filters: see `flatmq.Client.unsubscribe`."""
    made = self.core.unsubscribe(filters)
    mark(self)
    return made


def leave(client: "Client") -> None:
    """End the subscriptions of the queues that were closed."""
    core = client.core
    for each in client.queues:
        if each.closed:
            mine = each.subscription
            others = [f for s in core.subscriptions if s is not mine for f in s.filters]
            gone = [f for f in mine.filters if f not in others]
            if gone:
                core.unsubscribe(gone)
            if mine.filters:  # also of another one
                core.withdraw(mine)
    client.closing = False
    mark(client)


def mark(client: "Client") -> None:
    """Mark the queues whose subscription has ended as closed, and forget them."""
    left = []
    for each in client.queues:
        if each.subscription in client.core.subscriptions:
            left.append(each)
        else:
            each.closed = True
    client.queues = left
    client.turn.wake()


def refused(subscription: "Subscription") -> None:
    """Raise MQTTError for a subscription that the broker has refused."""
    code = max(subscription.granted or b"")
    drop("aio_rare")
    raise MQTTError("refused", f"SUBACK: reason code {code:#x} for {subscription.filters}", code)


async def disconnect(self: "Client", timeout_ms: int = 1000) -> bool:
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
    try:
        gone = core.disconnect(max(ticks_diff(end, ticks_ms()), 0))
    finally:  # also if a hook raises
        self.disconnected = core.state == "offline"
        self.turn.wake()
    while self.running and self.disconnected:  # else another `run` has begun
        await self.turn
    return gone


async def __aenter__(self: "Client") -> "Client":
    self.runner = asyncio.create_task(self.run())
    try:
        while not (self.running or self.runner.done()):
            await sleep_ms(0)
    except BaseException:
        self.runner.cancel()
        raise
    return self


async def __aexit__(self: "Client", kind: "Any", *error: "Any") -> None:
    try:
        await self.disconnect()
        await self.runner
    except Exception:
        if kind is None:
            raise
    finally:
        self.runner.cancel()  # if this was cancelled, or had no memory
