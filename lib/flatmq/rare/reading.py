"""The parts of a message besides payload, topic and flags. Loaded with the first use."""

from ..port import MICROPYTHON, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..message import Message

_NAMES = ("is_topic", "is_payload", "text", "json", "number", "copy", "write_to")


def get(m: "Message", name: str) -> "Any":
    """Return an attribute that the class Message has not. Methods are added to the class."""
    if name == "id":
        if m.size:
            return m.pid
        at = m.t + 2 + (m.buf[m.t] << 8 | m.buf[m.t + 1])
        return m.buf[at] << 8 | m.buf[at + 1] if m.first & 6 else 0
    if name == "total":
        return m.size or m.end - m.at
    if name == "properties" and hasattr(type(m.client), "carry"):  # MQTT 5, before there were any
        load("carry", "v5.").begin(m.client)
        return m.properties
    if name == "last":
        return m.size == 0 or m.offset + m.end - m.at == m.size
    if name not in _NAMES:
        raise AttributeError(name)
    setattr(type(m), name, globals()[name])
    return getattr(m, name)


def is_topic(self: "Message", name: bytes) -> bool:
    """Return whether the topic name is `name`."""
    at = self.t + 2
    end = at + (self.buf[at - 2] << 8 | self.buf[at - 1])
    return end - at == len(name) and self.buf.find(name, at, end) == at


def is_payload(self: "Message", value: bytes) -> bool:
    """Return whether the payload is `value`."""
    at = self.at
    return self.end - at == len(value) and self.buf.find(value, at, self.end) == at


def text(self: "Message") -> str:
    """Return the payload as str. UnicodeError if it is not UTF-8. Allocates."""
    return str(self.payload, "utf-8")


def json(self: "Message") -> "Any":
    """Return what the JSON document in the payload says. ValueError if it is none. Allocates."""
    from json import loads

    return loads(self.payload)


def number(self: "Message") -> "int | None":
    """Return the payload as an integer: decimal digits with an optional sign, else None.
    Values of more than 30 bits allocate on a 32-bit board."""
    at = self.at
    minus = at < self.end and self.buf[at] == 45
    if minus or (at < self.end and self.buf[at] == 43):
        at += 1
    value = None
    while at < self.end:
        c = self.buf[at] - 48
        if not 0 <= c <= 9:
            return None
        value = (value or 0) * 10 + c
        at += 1
    return -value if minus and value else value


def copy(self: "Message", into: "bytearray | memoryview") -> int:
    """Copy the payload to the start of `into`, and return its size in bytes.

    ValueError if `into` is too small.
    """
    n = self.end - self.at
    if n > len(into):
        raise ValueError(f"into must be at least {n} bytes, not {len(into)}")
    for i in range(n):
        into[i] = self.buf[self.at + i]
    return n


def write_to(self: "Message", stream: "Any") -> "int | None":
    """Write the payload to a file or another binary stream.

    Returns what its `write` returns: for a file, the number of bytes.
    """
    if MICROPYTHON:
        return stream.write(self.buf, self.at, self.end - self.at)
    return stream.write(memoryview(self.buf)[self.at : self.end])


if not MICROPYTHON:

    def install(kind: "Any") -> None:
        """Add everything to the class, with properties.

        CPython does not specialize attribute access in a class that has a `__getattr__`.
        """
        get = kind.__getattr__
        for name in _NAMES:
            setattr(kind, name, globals()[name])
        for name in ("id", "last", "total", "payload", "qos", "retain", "dup", "topic"):
            setattr(kind, name, property(lambda m, name=name: get(m, name)))  # type: ignore[misc]
        del kind.__getattr__
