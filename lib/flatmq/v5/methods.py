"""The methods of an MQTT 5 client that are loaded when they are called."""

from .. import is_name
from ..port import MICROPYTHON, const, drop, load
from ..wire import field, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..properties import Properties
    from . import Client5

_WITH_WILL = const(4)  # the reason code of a DISCONNECT after which the will is published


def modules() -> "dict[str, str]":
    """Return the module that has a method, by names: in addition to those of `methods`."""
    table = """\
alias alias
authenticate methods
disconnect methods
publish_from methods
request replies
set_credentials saying
set_will saying
subscribe subscribing
unsubscribe subscribing"""
    return dict([line.split() for line in table.splitlines()])


def get(c: "Client5", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError for an unknown name."""
    drop("methods")
    home = modules().get(name)
    if not home:
        return load("methods", "").get(c, name)
    module = load(home, "v5.")
    if home == "alias" or home == "replies":  # they stay loaded
        setattr(type(c), name, getattr(module, name))
        return getattr(c, name)

    def call(*a, **values):
        try:
            return getattr(module, name)(c, *a, **values)
        finally:
            load("methods", "").settle(c)
            drop("methods", "properties")

    return call


if not MICROPYTHON:

    def install(kind: "Any") -> None:
        """Add all methods to the class."""
        for name, module in modules().items():
            setattr(kind, name, getattr(load(module, "v5."), name))


def publish_from(
    self: "Client5",
    topic: "bytes | str",
    source: "Any",
    qos: int = 0,
    retain: bool = False,
    properties: "Properties | None" = None,
) -> "int | None":
    """Accept a large message, and send it in pieces: see `Client.publish_from`.

    `properties` are sent with it.
    """
    if not self.large:
        self.large = load("parts").Parts(self)
    head = (0x31 if retain else 0x30) | number("qos", qos, 0, min(self.max_qos, 1)) << 1
    name = field("topic name", topic, is_name)
    block = self.empty
    if properties is not None and block:  # no block: the client has fallen back to 3.1.1
        block = self.block_of(properties)
    if self.five:
        if isinstance(source, str):
            source = source.encode()
        size = 0
        if hasattr(source, "readinto"):
            size = source.seek(0, 2)
        elif hasattr(source, "__len__") or isinstance(source, (bytes, bytearray, memoryview)):
            size = len(source)
        self.allow(len(name) + len(block) + size + (4 if qos else 2), retain)
    if qos and self.inflight < 1:  # messages dropped in flight take up all places
        return None
    pid = self.large.publish(head, name, source, block)
    if self.five:
        self.five.allot(self)
    return pid


def disconnect(
    self: "Client5",
    timeout_ms: int = 1000,
    with_will: bool = False,
    session_expiry: "int | None" = None,
) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close: see `Client.disconnect`.
    `with_will`: the broker still publishes the will. `session_expiry`: seconds for which it keeps
    the session from now on; must be 0 if the client was made with 0."""
    packet = b"\xe0\0"
    if self.level == 5 and (with_will or session_expiry is not None):
        from ..properties import block

        if session_expiry and self.ends:
            number("session_expiry of a client that was made with 0", session_expiry, 0, 0)
        data = block({"session_expiry": session_expiry}) if session_expiry is not None else b""
        packet = bytes((0xE0, 1 + len(data), _WITH_WILL if with_will else 0)) + data
        most = self.server.maximum_packet_size
        if self.connected and 0 < most < len(packet):
            raise ValueError(f"DISCONNECT must be at most {most} bytes, not {len(packet)}")
    return load("connecting").leave(self, timeout_ms, packet)


def authenticate(self: "Client5") -> None:
    """Authenticate again while online (section 4.12.1), with the function of `auth`."""
    if not self.auth:
        raise ValueError("authenticate needs a client that was made with auth")
    if self.connected:
        load("auth", "v5.").begin(self)
