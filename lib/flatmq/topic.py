"""Topic filters: are they valid, and do they match a topic name? (3.1.1 section 4.7)"""

from .port import const
from .wire import is_utf8

_HASH = const(35)
_DOLLAR = const(36)
_PLUS = const(43)
_SLASH = const(47)

# A builtin is found after a miss in the module; a module global is found at once.
_len = len


def is_filter(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Whether the bytes from `at` to `end` are a topic filter: at least one byte of UTF-8, no
    U+0000, "+" and "#" only as a whole level, "#" only as the last."""
    for i in range(at, end):
        c = buf[i]
        if c == _PLUS or c == _HASH:
            if i > at and buf[i - 1] != _SLASH:
                return False
            if i + 1 < end and (c == _HASH or buf[i + 1] != _SLASH):
                return False
    return at < end and is_utf8(buf, at, end)


def matches(filt: bytes, name: bytearray, t: int, end: int) -> bool:
    """Whether a valid topic filter matches the valid topic name in `name` from `t` to `end`.
    Allocates nothing."""
    f = 0
    if end - t == _len(filt) and name.find(filt, t, end) == t:
        return True
    if filt.find(b"+") < 0 and filt.find(b"#") < 0:
        return False
    if name[t] == _DOLLAR and (filt[0] == _PLUS or filt[0] == _HASH):
        return False  # section 4.7.2: a leading wildcard does not reach $SYS and the like
    while f < _len(filt):
        c = filt[f]
        if c == _HASH:
            return True
        if c == _PLUS:
            while t < end and name[t] != _SLASH:
                t += 1
        elif t < end and name[t] == c:
            t += 1
        else:  # "a/#" matches "a" too: the parent level (section 4.7.1.2)
            return t == end and c == _SLASH and f + 2 == _len(filt) and filt[f + 1] == _HASH
        f += 1
    return t == end
