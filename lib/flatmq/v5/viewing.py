"""Compare properties, and look for User Properties. Loaded with the first use, and kept."""

from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .walk import View

_USER = const(0x26)  # User Property
_NAMES = ("is_value", "user", "is_user")


def get(view: "View", name: str) -> "Any":
    """Return the method `name` of a view, which is added to the class."""
    if name not in _NAMES:
        raise AttributeError(name)
    kind = type(view)
    setattr(kind, name, globals()[name])
    return getattr(view, name)


def install(kind: "Any") -> None:
    """Add all methods to the class. For CPython."""
    for name in _NAMES:
        setattr(kind, name, globals()[name])


def is_value(self: "View", identifier: int, value: "bytes | bytearray") -> bool:
    """Return whether a property of text or bytes is present and equals `value`.

    Allocates nothing.
    """
    return self.find(identifier) and _is(self, self.at, value) == self.end


def user(self: "View", name: bytes) -> "bytes | None":
    """Return the value of the first User Property with this name, None if there is none.
    Allocates the value."""
    at = 0
    while self.find(_USER, at):
        at = _is(self, self.at, name)
        if at:
            return bytes(self.buf[at + 2 : self.end])
        at = self.end
    return None


def is_user(self: "View", name: bytes, value: bytes) -> bool:
    """Return whether there is a User Property with this name and value. Allocates nothing."""
    at = 0
    while self.find(_USER, at):
        at = _is(self, self.at, name)
        if at and _is(self, at, value) == self.end:
            return True
        at = self.end
    return False


def _is(self, at, value):
    """Return the position after the field at `at` if it is `value`, else 0."""
    n = at + 2 + (self.buf[at] << 8 | self.buf[at + 1])
    if n - at - 2 != len(value) or self.buf.find(value, at + 2, n) != at + 2:
        return 0
    return n
