"""The message that describes a device of Home Assistant (`ha`), in pieces."""

from json import dumps

from flatmq import __version__

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client
    from .ha import Device


class Stream:
    """The message of a device, as the file that `publish_from` reads."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._count = len(device.components)  # those that are added later are in the next message
        self._pieces: Any = None
        self._left = b""

    def seek(self, at: int, whence: int = 0) -> int:
        """Return the size if `whence` is 2. The next `readinto` begins at the start."""
        self._pieces = _described(self._device, self._count)
        self._left = b""
        return sum(len(piece) for piece in _described(self._device, self._count)) if whence else 0

    def readinto(self, into: memoryview) -> int:
        """Fill a buffer with the next bytes. Returns their number, 0 at the end."""
        n = 0
        while n < len(into):
            if not self._left:
                self._left = next(self._pieces, b"")
                if not self._left:
                    break
            piece = self._left[: len(into) - n]
            into[n : n + len(piece)] = piece
            n += len(piece)
            self._left = self._left[len(piece) :]
        return n

    def publish(self, client: "Client") -> "int | None":
        """Publish the message. Returns None if there is no memory or room for it now."""
        topic = b"homeassistant/device/" + self._device.identifier + b"/config"
        qos = client.max_qos and 1
        if not client.pending:
            return client.publish_from(topic, self, qos, True)
        try:
            data = bytearray(self.seek(0, 2))
            self.readinto(memoryview(data))
        except MemoryError:
            return None
        return client.publish(topic, data, qos, True)


def _described(device, count):
    """Return the message about the first `count` components, in pieces."""
    yield b'{"o":{"name":"flatmq","sw":"'
    yield __version__.encode()
    yield b'"},"dev":{"ids":"'
    yield device.identifier
    yield b'"'
    yield device.about
    yield b'},"avty_t":'
    yield dumps(str(device.status, "utf-8")).encode()
    yield b',"avty_tpl":'
    yield device.availability
    yield b',"cmps":{'
    for i in range(count):
        each = device.components[i]
        yield b'},"' if i else b'"'
        yield each.key
        yield b'":{"p":"'
        yield each.platform
        yield b'"'
        if each.fields is not None:
            yield b',"uniq_id":"'
            yield device.identifier
            yield b"_"
            yield each.key
            yield b'"'
            yield from each.pieces()
    yield b"}}}" if count else b"}}"


def checked(what: str, value: "bytes | str") -> bytes:
    """Return `value` as bytes if Home Assistant allows its characters in a topic."""
    value = value.encode() if isinstance(value, str) else value
    for c in value:
        if not (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c in b"_-"):
            break
    else:
        if value:
            return value
    raise ValueError(f"{what} must be letters, digits, _ and -, not {value!r}")


def members(fields: "dict[str, Any]") -> bytes:
    """Return members of a JSON object, each after a comma."""
    text = ""
    for name in fields:
        value = fields[name]
        if isinstance(value, bytes):
            value = str(value, "utf-8")
        text += ',"' + name + '":' + dumps(value)
    return text.encode()
