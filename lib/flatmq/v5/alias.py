"""Topic aliases (MQTT 5 section 3.3.2.3.4).

A topic name is sent once per connection, and then two bytes stand for it. Loaded with the first
call of `alias`.
"""

from .. import is_name, wire
from ..port import const
from ..wire import field

wire.held = True

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5

# What the broker offers: see `v5.server`.
_TOPIC_ALIAS_MAXIMUM = const(4)

_ALIAS = const(0x23)


def alias(self: "Client5", topic: "bytes | str") -> "Alias":
    """Return an Alias, which publishes QoS 0 messages to one topic name.

    Keep it and use it for all of them. ValueError or TypeError for a bad topic name.
    """
    return Alias(self, field("topic name", topic, is_name))


class Alias:
    """A topic name that is sent once per connection, for the QoS 0 messages of a `client`.

    A message that has not left when its connection ends is set aside: the next connection does
    not know the alias. Messages at QoS 1 and 2 may be sent again, so they must not have an alias:
    publish them with `client.publish`.
    """

    def __init__(self, client: "Client5", topic: bytes) -> None:
        self._client = client
        self._topic = topic
        self._numbered = -1  # the connection on which it has a number
        self._known = -1  # the connection on which the broker knows it
        # What goes before the payload: the topic name, or an empty one, and the property.
        self._full = bytearray((0, 0, len(topic) >> 8, len(topic) & 255)) + topic
        self._full.extend(bytes((3, _ALIAS, 0, 0)))
        self._short = bytearray((0, 0, 0, 0, 3, _ALIAS, 0, 0))

    def publish(
        self, payload: "bytes | bytearray | memoryview | str" = b"", retain: bool = False
    ) -> "int | None":
        """Accept a message at QoS 0: see `Client.publish`.

        While offline, or if the broker takes no more aliases, it is sent with its topic
        name. Allocates nothing.
        """
        c = self._client
        if not c.connected or c.level != 5 or not self._has_number():
            return c.publish(self._topic, payload, 0, retain)
        if c.properties is not None:
            c.carry(None)
        c.topic = self
        c.qos = 0
        c.head = self._short if self._known == c.stats.connects else self._full
        done = c.publish(self, payload, 0, retain)  # type: ignore[arg-type]
        c.topic = c
        if done is not None:
            self._known = c.stats.connects
        return done

    def _has_number(self):
        """Return whether it has a number on this connection. Assigns one if the broker allows."""
        c = self._client
        if self._numbered == c.stats.connects:
            return True
        n = c.aliases + 1
        if n > c.offers[_TOPIC_ALIAS_MAXIMUM]:
            return False
        c.aliases = n
        self._numbered = c.stats.connects
        self._full[-2] = self._short[-2] = n >> 8
        self._full[-1] = self._short[-1] = n & 255
        return True
