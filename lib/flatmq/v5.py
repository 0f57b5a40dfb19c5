"""The client for MQTT 5: what differs from 3.1.1 when it publishes.

Loaded by `Client(version=5)`, and by `version=None`, which falls back to 3.1.1.
"""

# Imported, a builtin is found at once; else only after a miss in the module.
from builtins import bytearray, bytes, len, memoryview

from .client import Client
from .port import MICROPYTHON, const
from .session import Session, converted

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import replies, v5_alias, v5_methods, v5_pieces, v5_subscribing
    from .properties import Properties
    from .router import Router
    from .v5_server import Server

# The methods that are loaded with their first call, beside those of `calls`.
_MODULES = {
    "alias": "v5_alias",
    "authenticate": "v5_methods",
    "disconnect": "v5_methods",
    "drop": "v5_methods",
    "publish_from": "v5_pieces",
    "request": "replies",
    "set_credentials": "v5_methods",
    "set_will": "v5_methods",
    "subscribe": "v5_subscribing",
    "unsubscribe": "v5_subscribing",
}


class Client5(Client):
    """An MQTT 5 client: what `Client(version=5)` makes. Its arguments are those of `Client`, and

    clean_session    True: the session ends with the connection. False: Clean Start is 0, and the
                     broker keeps the session for `session_expiry` after a connection has ended
    session_expiry   s, 0 to 4,294,967,295, which is for ever; None: for ever with
                     clean_session=False, else 0
    user             also without `password`, and `password` without it
    user_properties  of CONNECT: a list of pairs of name and value, or a dict
    auth             enhanced authentication (section 4.12): a pair of the method's name, and a
                     function that is called with None, and returns the first data; then with the
                     data of each AUTH packet, and returns what to answer; and with the data of
                     CONNACK, if it has any. What it raises ends the connection, and an MQTTError
                     is then `error`
    maximum_packet_size  bytes of the largest packet that the broker may send, None for any.
                     Larger messages then never arrive. mosquitto does not give back their place
                     in flight, so leave it out unless the broker is known to do better
    response_topic   where answers to `request` go: b"reply/" and the client identifier unless
                     given
    requests         calls of `request` that may wait for their answer, 1 to 255

    With `version=None` the client tries MQTT 5 first, and 3.1.1 if the broker refuses that or
    closes the connection twice in a row before CONNACK; `level` says which, and stays what it is
    after the first connection. In 3.1.1 properties are left out.

    `incoming` is sent as Receive Maximum. `max_qos` and the number of messages in flight follow
    what the broker says, which is in `server`.
    """

    level: int  # 5, or 4 after falling back
    server: "Server"  # what the last CONNACK said
    properties: "Any"  # what publish was last given, the client itself if that may change;
    block: bytes  # the bytes of it: properties with their length before them
    empty: bytes  # what they are where there are none
    scratch: bytearray  # a topic name and properties that are not in `fields`
    quota: int  # QoS 1 and 2 messages that may be in flight
    gone: "list[int]"  # packet identifiers of those that were dropped in flight: they take a
    # place until the broker has answered
    strict: bool  # some messages are not allowed by the broker

    if TYPE_CHECKING:
        alias = v5_alias.alias
        authenticate = v5_methods.authenticate
        disconnect = v5_methods.disconnect
        publish_from = v5_pieces.publish_from
        request = replies.request
        set_will = v5_methods.set_will
        subscribe = v5_subscribing.subscribe

        def __init__(
            self,
            client_id: bytes | str,
            host: str = "",
            port: int | None = None,
            *,
            version: int | None = 5,
            session_expiry: int | None = None,
            user_properties: Any = None,
            auth: tuple[str, Callable[[bytes | None], bytes]] | None = None,
            maximum_packet_size: int | None = None,
            response_topic: bytes | str | None = None,
            requests: int = 4,
            **options: Any,  # those of Client
        ) -> None: ...

    else:

        def __init__(self, *args, **options):
            from .v5_setup import make

            make(self, *args, **options)

    def __getattr__(self, name):
        from .calls import MODULES, method

        return method(self, name, _MODULES if name in _MODULES else MODULES)

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
        properties: "Properties | None" = None,
    ) -> "int | None":
        """Accept a message: see `Session.publish`. `properties` are sent with it. ValueError also
        for what the broker has said it does not take."""
        # As in Session.publish there are few locals: `properties` becomes the size.
        if topic is not self.topic or properties is not self.properties:
            self.prepare(topic, properties)
        if (qos and qos != 1 and qos != 2) or (
            payload.__class__ is not bytes
            and payload.__class__ is not bytearray
            and payload.__class__ is not memoryview
        ):
            payload = converted(payload, qos, self.max_qos)
        topic = self.name  # type: ignore[assignment]
        properties = len(topic) + len(payload)  # type: ignore[assignment]
        if qos:
            properties += 2  # type: ignore
        if self.strict:
            self.allow(properties, retain)  # type: ignore[arg-type]
        if self.end + properties + 5 > self.limit and not self.make_room(properties):  # type: ignore
            return None
        if qos and self.count >= self.quota:
            return None
        at = self.end
        self.buf[at] = (0x31 if retain else 0x30) | qos << 1
        at += 1
        while properties > 127:  # type: ignore
            self.buf[at] = properties & 127 | 128  # type: ignore
            properties >>= 7  # type: ignore
            at += 1
        self.buf[at] = properties  # type: ignore
        at += 1
        properties = at + len(topic)  # type: ignore
        self.buf[at:properties] = topic  # type: ignore
        if qos:
            properties += 2  # type: ignore
        at = properties + len(payload)  # type: ignore
        self.buf[properties:at] = payload  # type: ignore
        if qos:  # only now: a payload that cannot be copied leaves nothing behind
            qos = self.record(qos, properties)  # type: ignore
        self.end = at
        self.pending += 1
        self.queued = True
        return qos

    def prepare(self, topic: "bytes | str", properties: "Properties | None") -> None:
        """Have a topic name and properties in `name`. ValueError or TypeError if they are not
        valid."""
        block = self.empty
        if properties is not None and block:
            block = block_of(properties)
        Session.check(self, topic)  # not `check`: one call less
        if block is not self.empty:
            self.block = self.empty  # stays so if memory is short
            self.properties = None
            # In `fields` each name has `empty` behind it.
            self.scratch[0:] = self.name
            self.scratch[len(self.name) - 1 :] = block
            self.name = self.scratch
        self.block = block
        self.properties = properties

    def check(self, topic: "bytes | str") -> None:
        """Have a topic name in `name`: see `Session.check`."""
        Session.check(self, topic)
        self.block = self.empty
        self.properties = None

    def remember(self, name: "bytes | bytearray", lasting: bool) -> None:
        """Have a valid topic name in `name`, and an empty block of properties behind it."""
        Session.remember(self, name, lasting)
        self.name.extend(self.empty)

    def record(self, qos: int, n: int) -> int:
        """Give the PUBLISH at `end` a record: see `Session.record`. Its properties, which are
        before `n`, move behind the packet identifier."""
        at = n - len(self.block)
        self.buf[at:n] = self.block
        return Session.record(self, qos, at)

    def allow(self, n: int, retain: bool) -> None:
        """Check a message with `n` bytes behind its fixed header against what the broker takes.
        ValueError if it does not take it."""
        if retain and not self.server.retain:
            raise ValueError("retain must be False: the broker has no retained messages")
        n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
        most = self.server.maximum_packet_size
        if most and n > most:
            raise ValueError(f"packet must be at most {most} bytes for this broker, not {n}")

    def allot(self) -> None:
        """Have `quota` be what the broker's Receive Maximum leaves (section 4.9)."""
        most = self.server.receive_maximum - len(self.gone)
        if self.large and self.large.waits and self.ids[self.slots]:
            most -= 1
        self.quota = min(self.slots, most)

    def load(self) -> "Router":
        """Return the receiving half."""
        if self.level == 5 and not self.router:
            from .v5_router import Router5

            if not self.received:
                self.received = [0] * self.options["incoming"]
            self.router = Router5(self)
        elif not self.router:
            from .v5_walk import View

            Client.load(self).message.properties = View(self.rx)  # none, in 3.1.1
        return Client.load(self)

    def start(self) -> None:
        """Begin to connect; `poll` does the rest, and reconnects after each loss."""
        if not self.connection:
            if self.level == 5:
                from .v5_connection import Connection5 as Connection
            else:
                from .connection import Connection  # type: ignore[assignment]

            self.connection = Connection(self)
        if self.state == "offline":
            self.connection.start()


def block_of(properties: "Any", will: bool = False) -> bytes:
    """Return the bytes of the properties of a message or a `will`. TypeError or ValueError if it
    cannot have them."""
    if not hasattr(properties, "block"):
        raise TypeError(f"properties must be Properties, not {properties!r}")
    if properties.will and not will:
        raise ValueError("properties must not have will_delay: only a will has it")
    return properties.block


def new(args: tuple, options: dict) -> Client5:
    """Return a client for these arguments of `Client`."""
    client: Client5 = object.__new__(Client5)
    if MICROPYTHON:  # CPython calls it, as this is an instance of the class that was asked for
        client.__init__(*args, **options)  # type: ignore[misc]
    return client


if not MICROPYTHON:
    from . import calls

    for name in _MODULES:
        setattr(Client5, name, calls.method(None, name, _MODULES))
    del Client5.__getattr__
