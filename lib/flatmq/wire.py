"""MQTT on the wire: Remaining Length, strings, and the packets that a client sends.

Functions over buffers, with no state of their own. Integers are big-endian (3.1.1 section
1.5.2). `packet` and `connect`, needed once per connection at the most, build a new bytearray;
the rest allocates nothing when it is given bytes.
"""

# A builtin is found after a miss in the module; a module global is found at once.
_len = len


def put_length(buf: "bytearray | memoryview", at: int, n: int) -> int:
    """Write Remaining Length `n`, 0 to 268,435,455, in 1 to 4 bytes from `at` on (section
    2.2.3). Returns the position after it."""
    while n > 127:
        buf[at] = n & 127 | 128
        n >>= 7
        at += 1
    buf[at] = n
    return at + 1


def get_length(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Read a Remaining Length that starts at `at`; the bytes run up to `end`.

    Returns `value << 2 | bytes - 1`, which is a small int on every board; -1 when more bytes
    are needed; -2 when a fifth byte would be (section 2.2.3 allows four).
    """
    value = 0
    for i in range(4):
        if at + i >= end:
            return -1
        value |= (buf[at + i] & 127) << 7 * i
        if buf[at + i] < 128:
            return value << 2 | i
    return -2


def put_publish(
    buf: memoryview, at: int, head: int, topic: "bytes | bytearray", payload: "bytes | bytearray"
) -> int:
    """Write a PUBLISH (section 3.3) at `at`, where there must be room. Returns the position after
    it. `head` is the first byte, and at QoS 1 and 2 the packet identifier in bits 8 to 23."""
    # Seven locals and four words of stack: one more would put the frame on the heap.
    n = _len(topic)
    size = n + _len(payload) + (2 if head < 256 else 4)
    buf[at] = head & 255
    if size < 128:
        buf[at + 1] = size
        buf[at + 2] = 0
        buf[at + 3] = n
        at += 4
    else:
        at = put_length(buf, at + 1, size)
        buf[at] = n >> 8
        buf[at + 1] = n & 255
        at += 2
    n += at
    buf[at:n] = topic
    if head > 255:
        buf[n] = head >> 16
        buf[n + 1] = head >> 8 & 255
        n += 2
    at = n + _len(payload)
    buf[n:at] = payload
    return at


def is_utf8(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Whether the bytes from `at` to `end` are UTF-8 as section 1.5.3 wants it: shortest form,
    no surrogates, nothing past U+10FFFF, no U+0000."""
    if buf.find(b"\0", at, end) >= 0:
        return False
    for i in range(at, end):
        if buf[i] > 127:
            at = i
            break
    else:
        return True
    while at < end:
        c = buf[at]
        at += 1
        if c > 127:
            more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
            if c < 0xC2 or c > 0xF4 or at + more > end:
                return False
            c = c << 8 | buf[at]  # what is wrong with its value shows in the first two bytes
            if 0xE000 <= c < 0xE0A0 or 0xEDA0 <= c < 0xEE00 or 0xF000 <= c < 0xF090 or c > 0xF48F:
                return False
            while more:
                if buf[at] & 0xC0 != 0x80:
                    return False
                at += 1
                more -= 1
    return True


def is_name(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Whether the bytes from `at` to `end` are a topic name (section 4.7): at least one byte of
    UTF-8, no wildcard, no U+0000."""
    if at == end or buf.find(b"+", at, end) >= 0 or buf.find(b"#", at, end) >= 0:
        return False
    return is_utf8(buf, at, end)


def number(what: str, value: int, low: int, high: int) -> int:
    """`value` when it lies from `low` to `high`, else ValueError; `what` names it there."""
    if not low <= value <= high:
        raise ValueError(f"{what}: {value!r}, allowed is {low} to {high}")
    return value


def field(what: str, value: "bytes | str", is_good=is_utf8) -> bytes:
    """`value` as bytes, str as UTF-8. ValueError, with `what` in it, when it is longer than the
    65,535 bytes of a field (section 1.5.3) or not `is_good`."""
    if isinstance(value, str):
        value = value.encode()
    elif not isinstance(value, bytes):
        value = bytes(memoryview(value))  # of an int, bytes() would make that many zeros
    if len(value) > 65535:  # the text is made only when it is needed: publish comes here
        number(f"{what}: bytes", len(value), 0, 65535)
    if is_good and not is_good(value, 0, len(value)):
        raise ValueError(
            f"{what}: not allowed: {value!r} (empty, not UTF-8, U+0000 or a misplaced wildcard)"
        )
    return value


def packet(first: int, head: bytes, fields: "list[bytes]", tail: bytes = b"") -> bytearray:
    """A packet of the variable header `head` and of length-prefixed fields, each followed by
    `tail`."""
    body = bytearray(head)
    for f in fields:
        body.append(len(f) >> 8)
        body.append(len(f) & 255)
        body.extend(f)
        body.extend(tail)
    header = bytearray(5)
    header[0] = first
    return header[: put_length(header, 1, len(body))] + body


def connect(
    version: int, client_id, clean_session: bool, keepalive: int, user, password, will
) -> bytearray:
    """A CONNECT (section 3.1) at protocol level `version`: 4 is MQTT 3.1.1, 3 is MQTT 3.1.

    `will` is None, or topic, payload, QoS and retain. ValueError for a value out of its limits.
    """
    flags = 2 if clean_session else 0
    fields = [field("client_id", client_id)]
    if number("version", version, 3, 4) == 3 or not clean_session:
        number("client_id: bytes", len(fields[0]), 1, 23 if version == 3 else 65535)
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        fields.extend(will[:2])
    if user is not None:
        flags |= 128
        fields.append(field("user", user))
    if password is not None:
        if user is None:
            raise ValueError("password: given without a user")
        flags |= 64
        fields.append(field("password", password, None))
    number("keepalive", keepalive, 0, 65535)
    head = b"\0\4MQTT\4" if version == 4 else b"\0\6MQIsdp\3"
    return packet(0x10, head + bytes((flags, keepalive >> 8, keepalive & 255)), fields)
