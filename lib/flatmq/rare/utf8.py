"""Check text that is not ASCII (section 1.5.3). Loaded with the first one, and kept."""


def is_utf8(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are UTF-8.

    That is the shortest form, no surrogates, nothing past U+10FFFF.
    """
    while at < end:
        c = buf[at]
        at += 1
        if c > 127:
            more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            if c < 0xC2 or c > 0xF4 or at + more > end:
                return False
            c = c << 8 | buf[at]  # the first two bytes show whether the code point is allowed
            if 0xE000 <= c < 0xE0A0 or 0xEDA0 <= c < 0xEE00 or 0xF000 <= c < 0xF090 or c > 0xF48F:
                return False
            while more:
                if buf[at] & 0xC0 != 0x80:
                    return False
                at += 1
                more -= 1
    return True
