"""The MQTT 5 client: publishing with properties, within the broker's limits.

Loaded by `Client(version=5)`, and by `version=None`, which may fall back to 3.1.1.
"""

# An imported builtin is found without a miss in the module.
from builtins import bytearray, bytes, len, memoryview

from .port import MICROPYTHON, const
from .session import Session, converted
from .v5_client import Client

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import replies, v5_alias, v5_handover, v5_methods, v5_pieces, v5_subscribing
    from .properties import Properties
    from .router import Router
    from .v5_server import Server

# The methods that are loaded with their first call, in addition to those in `calls`.
_MODULES = {
    "alias": "v5_alias",
    "authenticate": "v5_methods",
    "disconnect": "v5_methods",
    "drop": "v5_methods",
    "handover": "v5_handover",
    "publish_from": "v5_pieces",
    "request": "replies",
    "set_credentials": "v5_methods",
    "set_will": "v5_methods",
    "subscribe": "v5_subscribing",
    "unsubscribe": "v5_subscribing",
}


class Client5(Client):
    """An MQTT 5 client, made by `Client(version=5)`.

    Its arguments are those of `Client`, and:

    clean_session    True: the session ends with the connection. False: Clean Start is 0, and the
                     broker keeps the session for `session_expiry` after a connection has ended
    session_expiry   seconds, 0 to 4,294,967,295, which means forever; None: forever with
                     clean_session=False, else 0
    user             may be given without `password`, and `password` without `user`
    user_properties  User Properties of CONNECT: a list of pairs of name and value, or a dict
    auth             enhanced authentication (section 4.12): a pair of the method's name and a
                     function. The function is called with None and returns the first data; with
                     the data of each AUTH packet, and returns the answer; and with the data of
                     CONNACK, if there is any. An exception from it ends the connection; if it is
                     an MQTTError, it becomes `error`
    maximum_packet_size  bytes of the largest packet that the broker may send; None: any. Larger
                     messages never arrive. mosquitto does not free their places in flight, so
                     set this only for a broker that is known to do so
    response_topic   topic name for the answers to `request`; the default is b"reply/" and the
                     client identifier
    requests         calls of `request` that may wait for an answer, 1 to 255

    With `version=None` the client tries MQTT 5 first, then 3.1.1 if the broker refuses it or
    closes the connection twice in a row before CONNACK. `level` says which of them is in use; it
    does not change after the first connection. In 3.1.1 properties are left out.

    `incoming` is sent as Receive Maximum. `max_qos` and the number of messages in flight follow
    the limits that the broker reports in `server`.
    """

    level: int  # 5, or 4 after falling back
    server: "Server"  # what the last CONNACK said
    properties: "Any"  # the properties last passed to publish
    block: bytes  # the same encoded, with their length in front
    empty: bytes  # an encoded block without properties; b"" in 3.1.1
    scratch: bytearray  # a topic name and properties that are not in `fields`
    quota: int  # QoS 1 and 2 messages that may be in flight
    gone: "list[int]"  # packet identifiers of messages that were dropped in flight: they take up
    # a place until the broker has answered
    strict: bool  # the broker does not allow some messages

    if TYPE_CHECKING:
        alias = v5_alias.alias
        authenticate = v5_methods.authenticate
        disconnect = v5_methods.disconnect
        handover = v5_handover.handover
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
        """Accept a message: see `Session.publish`.

        `properties` are sent with it. ValueError also for a message that is outside the
        broker's limits.
        """
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
        """Put a topic name and properties into `name`.

        ValueError or TypeError if they are not valid.
        """
        block = self.empty
        if properties is not None and block:
            block = block_of(properties)
        Session.check(self, topic)  # saves a call, compared with `check`
        if block is not self.empty:
            self.block = self.empty  # remains if memory is short
            self.properties = None
            # In `fields` each name has `empty` behind it.
            self.scratch[0:] = self.name
            self.scratch[len(self.name) - 1 :] = block
            self.name = self.scratch
        self.block = block
        self.properties = properties

    def check(self, topic: "bytes | str") -> None:
        """Put a topic name into `name`: see `Session.check`."""
        Session.check(self, topic)
        self.block = self.empty
        self.properties = None

    def remember(self, name: "bytes | bytearray", lasting: bool) -> None:
        """Put a valid topic name into `name`, followed by an empty block of properties."""
        Session.remember(self, name, lasting)
        self.name.extend(self.empty)

    def record(self, qos: int, n: int) -> int:
        """Give the PUBLISH at `end` a record: see `Session.record`.

        Its properties move behind the packet identifier, to end at `n`.
        """
        at = n - len(self.block)
        self.buf[at:n] = self.block
        return Session.record(self, qos, at)

    def allow(self, n: int, retain: bool) -> None:
        """Check a message with `n` bytes after its fixed header against the broker's limits.
        ValueError if it is outside them."""
        if retain and not self.server.retain:
            raise ValueError("retain must be False: not supported by this broker")
        n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
        most = self.server.maximum_packet_size
        if most and n > most:
            raise ValueError(f"packet must be at most {most} bytes for this broker, not {n}")

    def allot(self) -> None:
        """Set `quota` to what is left of the broker's Receive Maximum (section 4.9)."""
        most = self.server.receive_maximum - len(self.gone)
        if self.large and self.large.waits and self.ids[self.slots]:
            most -= 1
        self.quota = min(self.slots, most)

    def load(self) -> "Router":
        """Return the receiving half: see `Client.load`."""
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
        """Begin to connect. `poll` does the rest, and reconnects after each loss."""
        if not self.connection:
            if self.level == 5:
                from .v5_connection import Connection5 as Connection
            else:
                from .connection import Connection  # type: ignore[assignment]

            self.connection = Connection(self)
        if self.state == "offline":
            self.connection.start()


def block_of(properties: "Any", will: bool = False) -> bytes:
    """Return the encoded properties of a message, or of a `will`.

    TypeError or ValueError if it may not have them.
    """
    if not hasattr(properties, "block"):
        raise TypeError(f"properties must be Properties, not {properties!r}")
    if properties.will and not will:
        raise ValueError("properties must not have will_delay: only a will has it")
    return properties.block


def new(args: tuple, options: dict) -> Client5:
    """Return a client. `args` and `options` are those of `Client`."""
    client: Client5 = object.__new__(Client5)
    client.__init__(*args, **options)  # type: ignore[misc]
    return client


if not MICROPYTHON:
    from . import calls

    for name in _MODULES:
        setattr(Client5, name, calls.method(None, name, _MODULES))
    del Client5.__getattr__
