"""The data types of MQTT (section 1.5): integers, strings and binary data."""

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
WRONG_VERSION = 0x84
TOPIC_ALIAS_INVALID, TOO_LARGE = 0x94, 0x95
PAYLOAD_FORMAT_INVALID = 0x99

LARGEST = 268_435_455  # of a variable byte integer


class Broken(Exception):
    """Bytes that break a rule. `code` is the reason code with which the receiver answers.

    0x81 is for bytes that cannot be parsed, reserved bits, and properties that the packet cannot
    carry; 0x82 for a value that the protocol does not allow. Where the standard names another
    code, it is that one.
    """

    def __init__(self, text: str, code: int = MALFORMED) -> None:
        super().__init__(text)
        self.code = code


def integer(data: bytes | bytearray, at: int, tolerant: bool = False) -> tuple[int, int] | None:
    """The variable byte integer at `at` and where it ends; None if it is cut (section 1.5.5).

    `tolerant`: it may have needless bytes.
    """
    value = 0
    for n in range(4):
        if at + n >= len(data):
            return None
        byte = data[at + n]
        value |= (byte & 127) << 7 * n
        if byte < 128:
            if n and not byte and not tolerant:
                raise Broken("a variable byte integer with a needless byte [MQTT-1.5.5-1]")
            return value, at + n + 1
    raise Broken("a variable byte integer of five bytes")


def valid_text(raw: bytes, what: str) -> bytes:
    """The bytes of a UTF-8 string, if they are one (section 1.5.4)."""
    try:
        text = raw.decode("utf-8", "strict")  # refuses surrogates and overlong forms
    except UnicodeDecodeError:
        raise Broken(f"{what}: not UTF-8 [MQTT-1.5.4-1]") from None
    if "\0" in text:
        raise Broken(f"{what}: contains U+0000 [MQTT-1.5.4-2]")
    return raw


def topic_name(raw: bytes, what: str = "a topic name") -> bytes:
    """A topic name, if it is one (section 4.7)."""
    valid_text(raw, what)
    if not raw:
        raise Broken(f"{what}: empty [MQTT-4.7.3-1]", PROTOCOL_ERROR)
    if b"+" in raw or b"#" in raw:
        raise Broken(f"{what}: has a wildcard [MQTT-3.3.2-2]", PROTOCOL_ERROR)
    return raw


def length(n: int) -> bytes:
    """Return a Remaining Length, or another variable byte integer, in its shortest form."""
    encoded = bytearray()
    while not encoded or n:
        encoded.append(n % 128 + (128 if n > 127 else 0))
        n //= 128
    return bytes(encoded)


def text(value: bytes) -> bytes:
    """Return a string or binary data behind its length (section 1.5.3)."""
    return len(value).to_bytes(2, "big") + value


class Reader:
    """Takes fields from the body of a packet, one after another. A field that is cut is Broken."""

    def __init__(self, body: bytes | bytearray, tolerant: bool = False, level: int = 5) -> None:
        self._body = bytes(body)
        self._at = 0
        self.tolerant = tolerant  # see strict.packet
        self.level = level

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return len(self._body) - self._at

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes."""
        at = self._at
        if at + size > len(self._body):
            raise Broken(f"{what}: runs past the end")
        self._at = at + size
        return self._body[at : at + size]

    def number(self, size: int, what: str) -> int:
        """A big-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size, what), "big")

    def integer(self, what: str, *, shortest: bool = False) -> int:
        """A variable byte integer. `shortest`: it has no needless bytes, in any case."""
        found = integer(self._body, self._at, self.tolerant and not shortest)
        if found is None:
            raise Broken(f"{what}: runs past the end")
        value, self._at = found
        return value

    def data(self, what: str) -> bytes:
        """Binary data: a length of two bytes, and as many bytes."""
        return self.take(self.number(2, what), what)

    def text(self, what: str) -> bytes:
        """A UTF-8 string."""
        return valid_text(self.data(what), what)

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left, "the rest")

    def end(self, what: str) -> None:
        """Check that nothing is left."""
        if self.left:
            raise Broken(f"{what}: {self.left} bytes too many")
