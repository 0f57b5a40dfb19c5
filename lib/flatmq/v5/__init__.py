"""The MQTT 5 client: publishing with properties, within the broker's limits.

Loaded by `Client(version=5)`, and by `version=None`, which may fall back to 3.1.1.
"""

# Imported builtins are found without a miss in the module.
from builtins import bytes, len

from .. import Client, plain
from ..port import MICROPYTHON, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..properties import Properties

    # By names that the modules do not have: `make docs` follows these alone.
    from . import alias as aliasing
    from . import auth as authenticating
    from . import calls as rare
    from . import limits as strictness
    from . import replies as requests
    from . import subscribing as asking
    from .server import Server
    from .walk import View


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
    closes the connection twice in a row before CONNACK, and so on in turn. `level` says which of
    them is in use; it does not change after the first connection. In 3.1.1 properties are left
    out.

    `incoming` is sent as Receive Maximum. `max_qos` and the number of messages in flight follow
    the limits that the broker reports in `server`.
    """

    level: int  # 5, or 4 for 3.1.1: the version of the last CONNECT or the next one
    server: "Server"  # what the last CONNACK said
    offers: "list[Any]"  # the same, in their order
    properties: "Any"  # the properties last passed to publish
    block: bytes  # the same encoded, with their length in front
    high: int  # where the packet identifier goes in `head`: a negative index, as `block` follows
    slots: int  # QoS 1 and 2 messages that may wait if the broker allows any number
    own_qos: int  # the highest QoS if the broker allows any
    owed: "list[int]"  # packet identifiers of messages that were dropped in flight: they take up
    # a place until the broker has answered
    strict: bool  # the broker does not allow some messages
    flow: "Any"  # Flow, while there are more messages than may be in flight
    aliases: int  # topic aliases in use on this connection
    numbered: int  # the subscription identifier assigned last
    blocks: "Any"  # the properties of the last messages with the names in `names`
    owners: "Any"  # the handlers that `blocks` name; False if they name none. The last is
    # for a message with faulty properties
    said: "View | None"  # the properties of the packet being handled, once there were any
    replies: "Any"  # Replies, after the first request
    response_topic: "bytes | None"
    most_requests: int
    asks: bytes  # the properties of CONNECT
    auth: "Any"
    ends: bool  # the session ends with its connection
    unanswered: "int | None"  # connections in a row that ended before CONNACK, and 2 more in
    # 3.1.1; None once the version does not change any more
    greeting: "Any"  # True if the last one did; after a CONNECT of 3.1.1, that of MQTT 5

    if TYPE_CHECKING:
        alias = aliasing.alias
        allow = strictness.allow
        authenticate = authenticating.authenticate
        disconnect = rare.disconnect
        publish_from = rare.publish_from
        request = requests.request
        set_will = rare.set_will
        subscribe = asking.subscribe

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

        def __init__(self, *args, **values):
            load("setup", "v5.").setup(self, *args, **values)

    # Found at once, not in the class below.
    poll = Client.poll
    flush = Client.flush

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
        properties: "Properties | None" = None,
    ) -> "int | None":
        """Accept a message: see `Client.publish`.

        `properties` are sent with it. ValueError also for a message that is outside the
        broker's limits.
        """
        # As in Client.publish there are few locals: `properties` becomes the size.
        if properties is not self.properties:
            self.carry(properties)
        if topic is not self.topic or qos != self.qos:
            self.address(topic, qos)
        if payload.__class__ is not bytes:
            payload = plain(payload)
        topic = self.q  # type: ignore[assignment]
        head = self.head
        properties = len(head) + len(payload) - 2  # type: ignore[assignment]
        if self.strict:
            self.allow(properties, retain)  # type: ignore[arg-type]
        if (
            self.end + properties + 5 > self.room or (qos and self.kept >= self.inflight)  # type: ignore
        ) and self.no_room(properties, qos):  # type: ignore[arg-type]
            return None
        head[1] = properties & 127  # type: ignore[operator]
        if qos:
            qos = self.last_id + 1 & 65535 or 1
            if qos == self.stop:
                qos = load("strays").next_id(self)
            self.last_id = qos
            head[self.high] = qos >> 8
            head[self.high + 1] = qos & 255
        topic[self.end :] = head  # type: ignore[index]
        topic.extend(payload)  # type: ignore[union-attr]
        if properties > 127:  # type: ignore[operator]
            self.widen(properties)  # type: ignore[arg-type]
        properties = 0x30 | self.qos << 1  # type: ignore
        if retain:
            if retain != 1:
                load("checks").retain(retain)
            properties |= 1  # type: ignore
        topic[self.end] = properties  # type: ignore
        if qos:
            self.kept += 1
        self.pending += 1
        self.end = len(topic)
        return qos

    def carry(self, properties: "Properties | None") -> None:
        """Set `block` for these properties. ValueError or TypeError if they are not valid."""
        # Until they are found to be valid, and if Ctrl-C comes in between.
        self.topic = self.heads[3] = self.heads[4] = self.heads[5] = self.properties = self
        if not self.five:  # the client has fallen back to 3.1.1
            self.block = b""
        elif properties is None:
            self.block = b"\0"
        else:
            if not hasattr(properties, "block") or properties.will:
                load("checks").properties(properties)
            self.block = properties.block
        self.high = -2 - len(self.block)
        self.properties = properties


if not MICROPYTHON:
    load("methods", "").install(Client5, True)
