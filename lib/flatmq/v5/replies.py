"""Requests and answers (MQTT 5 section 4.10).

Subscribe to a response topic, and match answers to requests.

Loaded with the first call of `request`.
"""

import random

from .. import port, properties
from ..port import const, drop, load, ticks_add, ticks_diff
from ..properties import Properties
from .viewing import is_value

properties.held = True

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..message import Message
    from . import Client5

_CORRELATION = const(0x09)  # Correlation Data


def request(
    self: "Client5",
    topic: "bytes | str",
    payload: "bytes | bytearray | memoryview | str",
    handler: "Callable[[Message | None], None]",
    timeout: int = 10,
) -> bool:
    """Publish a request at QoS 1, and call `handler(message)` with the answer.

    The QoS is 0 if the broker supports no other. `handler(None)` is called if no answer has come
    after `timeout` seconds, 1 to 65,535.
    Answers go to the client's `response_topic`.

    Returns False if there is no room for the message, or for another waiting request: see
    `requests` of the client. Only the first call, which subscribes to the response topic,
    allocates.
    """
    if not self.five or not self.replies:
        begin(self)
    self = self.replies  # another local would put the frame on the heap
    return self.request(topic, payload, handler, timeout)


def begin(c: "Client5") -> None:
    """Make the Replies object of a client that has none yet."""
    if not c.five:
        raise ValueError("request needs MQTT 5: the client has fallen back to 3.1.1")
    c.replies = Replies(c)
    if c.state == "offline":
        c.start()


class Replies:
    """The requests of a `client` that wait for an answer, in a table of fixed size."""

    def __init__(self, client: "Client5") -> None:
        topic = client.response_topic
        if topic is None:
            name = load("hello", "").parts_of(client)[0]
            drop("hello")
            if not name:
                raise ValueError("request needs a client_id, or a response_topic")
            topic = b"reply/" + name
        n = client.most_requests
        self._client = client
        self._handlers: list[Any] = [None] * n
        self._until = [0] * n
        # Correlation data: the place of the request, and a number that counts its uses. It begins
        # at random: an answer to a request from before a reboot must answer none.
        at = random.getrandbits(24)
        self._data = [bytearray((i, at >> 16, at >> 8 & 255, at & 255)) for i in range(n)]
        self._blocks = []
        for data in self._data:
            p = Properties(response_topic=topic, correlation_data=data)
            p.block = bytearray(p.block)  # type: ignore[assignment]
            self._blocks.append(p)
            self._at = p.block.find(data)  # where the correlation data is
        client.subscribe(topic, self._answered, min(1, client.own_qos))

    def request(self, topic, payload, handler, timeout: int) -> bool:
        """Publish a request: see `Client5.request`."""
        if not callable(handler) or timeout.__class__ is not int or not 0 < timeout < 65536:
            load("checks").request(handler, timeout)
        if None not in self._handlers:
            return False
        i = self._handlers.index(None)
        if self._send(topic, payload, i) is None:
            return False
        self._until[i] = ticks_add(port.ticks_ms(), timeout * 1000)
        self._handlers[i] = handler
        if self._client.connected:
            self._client.due = port.ticks_ms()  # the next poll computes when it is due
        return True

    def _send(self, topic, payload, i):
        self._count(self._data[i])
        self._blocks[i].block[self._at : self._at + 4] = self._data[i]
        self._client.properties = self._client  # the block has changed
        i = self._blocks[i]
        return self._client.publish(topic, payload, min(1, self._client.max_qos), False, i)

    def _count(self, data):
        """Increment the number in the last three bytes."""
        i = 3
        while i:
            data[i] = data[i] + 1 & 255
            if data[i]:
                break
            i -= 1

    def _answered(self, message):
        """Handle a message to the response topic. One that answers no request is ignored."""
        i = 0
        while i < len(self._handlers):
            handler = self._handlers[i]
            # Loaded before: without memory now, this would count as an exception of a handler.
            if handler and is_value(message.properties, _CORRELATION, self._data[i]):
                handler(message)  # if it raises, the message is delivered again
                self._handlers[i] = None
                return
            i += 1

    def end(self) -> None:
        """Give up all requests, because there will be no answers."""
        for i in range(len(self._handlers)):
            if self._handlers[i] is not None:
                self._give_up(i)

    def late(self, least: int) -> int:
        """Give up requests that have timed out.

        Returns the milliseconds until the next one does, at most `least`.
        """
        i = 0
        while i < len(self._handlers):
            if self._handlers[i] is not None:
                left = ticks_diff(self._until[i], port.ticks_ms())
                if left <= 0:
                    self._give_up(i)
                    i = -1  # its handler may have made another request, at any place
                elif left < least:
                    least = left
            i += 1
        return least

    def _give_up(self, i):
        handler = self._handlers[i]
        self._handlers[i] = None
        handler(None)
