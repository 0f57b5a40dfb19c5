"""Check topic names, and match them against topic filters (3.1.1 section 4.7)."""

# An imported builtin is found without a miss in the module.
from builtins import len

from .port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_HASH = const(35)
_DOLLAR = const(36)
_PLUS = const(43)
_SLASH = const(47)
utf8: "Any" = None  # once it is loaded


def is_utf8(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are UTF-8 as section 1.5.3 requires.

    That is the shortest form, no surrogates, nothing past U+10FFFF, no U+0000.
    """
    global utf8
    if buf.find(b"\0", at, end) >= 0:
        return False
    while at < end and buf[at] < 128:
        at += 1
    if at == end:
        return True
    if utf8 is None:
        utf8 = load("utf8").is_utf8
    return utf8(buf, at, end)


def is_name(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are a topic name (section 4.7).

    It has at least one byte, is UTF-8, and has no wildcard and no U+0000.
    """
    if at == end or buf.find(b"+", at, end) >= 0 or buf.find(b"#", at, end) >= 0:
        return False
    return is_utf8(buf, at, end)


def matches(filt: bytes, name: bytearray, t: int, end: int) -> bool:
    """Return whether a topic filter matches the topic name in `name` from `t` to `end`.

    Both must be valid. Allocates nothing.
    """
    f = 0
    if end - t == len(filt) and name.find(filt, t, end) == t:
        return True
    if filt.find(b"+") < 0 and filt.find(b"#") < 0:
        return False
    if name[t] == _DOLLAR and (filt[0] == _PLUS or filt[0] == _HASH):
        return False  # section 4.7.2: a leading wildcard does not match $SYS and the like
    while f < len(filt):
        c = filt[f]
        if c == _HASH:
            return True
        if c == _PLUS:
            while t < end and name[t] != _SLASH:
                t += 1
        elif t < end and name[t] == c:
            t += 1
        else:  # "a/#" matches "a" too: the parent level (section 4.7.1.2)
            return t == end and c == _SLASH and f + 2 == len(filt) and filt[f + 1] == _HASH
        f += 1
    return t == end
