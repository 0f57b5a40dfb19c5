"""Match topic names against topic filters (3.1.1 section 4.7). Loaded with the first wildcard."""

from ..port import const

_HASH = const(35)
_DOLLAR = const(36)
_PLUS = const(43)
_SLASH = const(47)


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
