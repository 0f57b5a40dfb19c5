"""The client with which a command reaches boards: by a broker, from the desk."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flatmq import Client, MQTTError
from flatmq.message import Message, Subscription

from . import broker as brokers
from .errors import ToolError
from .password import PASSWORD
from .plain import PlainConsole
from .trust import Trust

TURN_MS = 200
LARGEST = 16_384  # bytes of a message: others are skipped
PATIENCE_MS = 10_000  # for the broker, and for each of its answers
_QUIET_S = 1.0  # after the answer to a ping: then everything that is retained has come


@dataclass(frozen=True)
class Desk:
    """The way of a command to the boards: a broker, and how to log in there.

    The password of `user` is in the environment, as FLATMQ_PASSWORD. `trust`: connect with TLS.
    """

    broker: brokers.Broker
    user: str | None = None
    trust: Trust | None = None

    def client(self, name: str, rx_size: int = LARGEST, **options: Any) -> Client:
        """Return a client of a command that is called `name`, not connected yet.

        Raises ToolError for a user or password that cannot be.
        """
        host, port = self.broker.host, self.broker.port
        try:
            return Client(
                f"{name}-{secrets.token_hex(4)}",
                host,
                port,
                user=self.user,
                password=os.environ.get(PASSWORD) if self.user else None,
                link=self.trust.link(host, port) if self.trust else None,
                rx_size=rx_size,
                quiet=True,
                **options,
            )
        except ValueError as error:
            raise ToolError(str(error)) from error


def reached(address: str, user: str | None, trust: Trust | None) -> Desk:
    """Return the Desk of the broker at `host` or `host:port`. Raises ToolError."""
    return Desk(brokers.external(address, trust is not None), user, trust)


def connect(client: Client, *subscriptions: Subscription) -> None:
    """Connect, and wait until the broker has granted the subscriptions. Raises ToolError."""
    try:
        client.connect(PATIENCE_MS)
    except MQTTError as error:
        raise ToolError(f"cannot connect to the broker: {error}") from error
    end = time.monotonic() + PATIENCE_MS / 1000
    last = None  # error: the client forgets it with the next connection
    while any(each.granted is None for each in subscriptions) and time.monotonic() < end:
        client.poll(TURN_MS)
        last = client.error or last
    for each in subscriptions:
        topics = b", ".join(each.filters).decode()
        if each.granted is None:
            why = f": {last}" if last else ""
            raise ToolError(f"the broker answers no subscription to {topics}{why}")
        if 0x80 in each.granted:
            raise ToolError(f"the broker refuses the subscription to {topics}")


def follow(
    client: Client, filters: list[str], take: Callable[[str, Message], object], qos: int = 1
) -> None:
    """Connect and subscribe; `take` is called with each topic and message. Raises ToolError."""

    def named(message: Message) -> None:
        take(message.topic.decode(errors="replace"), message)

    connect(client, client.subscribe([f.encode() for f in filters], named, qos=qos))


def turns(
    client: Client, seconds: float | None, stop: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Poll the client until `stop`, or for so many seconds if there are any.

    A lost connection is reported on standard error, and what the broker refuses.
    """
    client.on_dropped = lambda _id, topic, reason: _report(f"{topic.decode()}: {reason}")
    end = None if seconds is None else time.monotonic() + seconds
    lost = False
    while True:
        client.poll(TURN_MS)
        if client.error and not lost:
            _report(f"the connection to the broker ended: {client.error}; trying again")
        lost = client.error is not None
        yield
        if stop() or (end is not None and time.monotonic() >= end):
            return


def _report(text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk, for example
        PlainConsole(stderr=True).print(text, soft_wrap=True)


def retained(client: Client, topic_filter: str) -> dict[str, bytes]:
    """Connect, and return what the broker retains, by topic. Raises ToolError."""
    found: dict[str, bytes] = {}
    last = time.monotonic()

    def take(topic: str, message: Message) -> None:
        nonlocal last
        if message.retain:  # others need not come to an end
            last = time.monotonic()
        if len(message):
            found[topic] = message.payload
        else:
            found.pop(topic, None)

    follow(client, [topic_filter], take, qos=0)
    client.ping()
    last = time.monotonic()
    while client.asked or time.monotonic() < last + _QUIET_S:
        client.poll(100)
        if not client.connected:
            raise ToolError(f"the connection ended: {client.error}")
    return found


def retain(client: Client, topic: str, payload: bytes) -> None:
    """Have the broker retain a message, or forget it if it is empty. Raises ToolError."""
    client.publish(topic, payload, 1, True)
    if not client.wait(PATIENCE_MS):
        raise ToolError(f"the broker has not acknowledged the message on {topic}")


def printable(value: Any) -> str:
    """Return a text that moves no cursor, whatever a board has published."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(value))
