"""Write packs of readings as SenML JSON (RFC 8428), into a buffer that is claimed once.

    pack = Pack(b"pico-1", boot, 256)
    temperature = label(b"temp", b"Cel")
    ...
    pack.begin(seq)
    pack.number(temperature, 2254, 2)  # 22.54
    client.publish(topic, pack.payload(), qos=1)

Every pack has the device in its base name, and two records, "boot" and "seq". Within a device and
a boot, a receiver uses `seq` to count packs that were lost, duplicated or out of order.
"""

from . import wire
from .port import const, load
from .wire import field, is_utf8, number

wire.held = True

_len = len

_SEQ_MAX = const(1073741823)  # the largest small int on a 32-bit board
_STEP = const(8)  # bytes between two sizes of payloads
_SEQ = const(b'},{"n":"seq","v":')
_BT = const(b',"bt":')
_T = const(b',"t":')
_HEX = const(b"0123456789abcdef")


def label(name: "bytes | str", unit: "bytes | str" = b"") -> bytes:
    """Return the beginning of a record, to be made once and passed to the methods of a Pack.

    It has the record's name (A to Z, a to z, 0 to 9, and - : . / _, section 4.5.1) and its
    unit (section 12.1; none if empty). ValueError for any other name, and for a unit that is
    not printable ASCII or has spaces, quotes or backslashes.
    """
    name = field("name", name)
    unit = field("unit", unit)
    _check_name(name, 0)
    for c in unit:
        if not 32 < c < 127 or c in b'"\\':
            raise ValueError(f"unit must be ASCII without blanks, quotes and \\, not {unit!r}")
    return b'{"n":"' + name + (b'","u":"' + unit if unit else b"") + b'"'


class Pack:
    """A pack of at most `size` bytes, from the device `name` with the boot id `boot`.

    `boot` is 0 to 1,073,741,823.

    It is a valid SenML pack after every call. A method that appends a record returns True, or
    False if there is no room for it. After False or an exception the pack is unchanged.

    ValueError for a name with characters that `label` does not allow, or that does not begin with
    a letter or a digit, and for a size that does not hold the name, boot id, sequence number and
    base time of a pack. Claims `size` bytes and, on a 32-bit board, 20 more for each 8 bytes
    beyond an empty pack. After that only str arguments and, on a 32-bit board, ints of more than
    31 bits allocate memory.
    """

    def __init__(self, name: "bytes | str", boot: int, size: int = 256) -> None:
        name = field("name", name)
        _check_name(name, 1)
        number("boot", boot, 0, _SEQ_MAX)
        head = b'[{"bn":"' + name + b'/","n":"boot","v":' + str(boot).encode()
        first = _len(head) + _len(_SEQ) + 3  # a pack with a sequence number of one digit
        # The largest pack without readings: ten digits, and a base time with 20.
        number("size", size, first + 9 + _len(_BT) + 20, 65535)
        self._size = size
        self._head = _len(head)
        self._first = first
        # A memoryview: assigning a slice of the wrong length raises, and never resizes.
        self._buf = memoryview(bytearray(size))
        self._buf[: self._head] = head
        # The slices for publish, made once because a slice takes heap.
        self._views = [self._buf[: min(n, size)] for n in range(first, size + _STEP, _STEP)]
        self.begin(0)

    def begin(self, seq: int, time: "int | None" = None) -> None:
        """Begin a new pack with the sequence number `seq`, 0 to 1,073,741,823.

        `time` is the base time in seconds since 1970, if the board knows it. ValueError
        for other values.
        """
        number("seq", seq, 0, _SEQ_MAX)
        n = self._head
        if time is not None:
            number("digits of time", size_of(time, 0), 1, 20)
            n = self._put(n, _BT)
            n += size_of(time, 0)
            write(self._buf, n, time, 0)
        n = self._put(n, _SEQ)
        n += size_of(seq, 0)
        write(self._buf, n, seq, 0)
        self._end = self._put(n, b"}]")

    def number(self, label: bytes, value: int, decimals: int = 0) -> bool:
        """Append a record whose value is `value` / 10 ** `decimals`: 2254 and 2 give 22.54.

        `value` may be any int, but receivers that store numbers as IEEE 754 doubles keep 53 bits
        of it (RFC 7493 section 2.2).
        """
        n = size_of(value, decimals)
        at = self._open(label, b',"v":', n)
        if not at:
            return False
        write(self._buf, at + n, value, decimals)  # which may need memory
        return self._close(at + n)

    def flag(self, label: bytes, value: bool) -> bool:
        """Append a record whose value is true or false."""
        word = b"true" if value else b"false"
        at = self._open(label, b',"vb":', _len(word))
        return at > 0 and self._close(self._put(at, word))

    def text(self, label: bytes, value: "bytes | str") -> bool:
        """Append a record whose value is a string: UTF-8 without U+0000, else ValueError."""
        if isinstance(value, str):
            value = value.encode()
        if not is_utf8(value, 0, _len(value)):
            raise ValueError(f"text must be UTF-8 without U+0000, not {value!r}")
        n = _escaped(value) + 1
        at = self._open(label, b',"vs":"', n)
        if not at:
            return False
        _write_text(self._buf, at, value)
        return self._close(at + n)

    def time(self, value: int, decimals: int = 0) -> bool:
        """Set the time of the record appended last to `value` / 10 ** `decimals` seconds.

        It is relative to the base time, or to now if the pack has none; negative for the
        past (section 4.5.3). Call it at most once per record. Returns False if there is no
        room.
        """
        n = size_of(value, decimals)
        at = self._end - 2
        if self._end + _len(_T) + n > self._size:
            return False
        n += at + _len(_T)
        write(self._buf, n, value, decimals)  # first, behind the pack: it may need memory
        self._put(at, _T)
        self._end = self._put(n, b"}]")
        return True

    def payload(self) -> memoryview:
        """Return the pack, which `publish` copies before the next call.

        Up to 7 spaces, which JSON allows there, pad it to one of the sizes for which there
        is a slice.
        """
        i = (self._end - self._first + _STEP - 1) // _STEP
        view = self._views[i]
        i = _len(view)
        while i > self._end:
            i -= 1
            view[i] = 32
        return view

    def __len__(self) -> int:
        """Return the size of the pack in bytes, without the padding of `payload`."""
        return self._end

    def _open(self, label, kind, n):
        """Write a record up to its value, of `n` bytes, behind the pack.

        Returns the position of the value, 0 if there is no room.
        """
        if label.__class__ is not bytes or not label or label[0] != 123:
            load("checks").label(label)
        at = self._end - 1  # the "]"
        n += at + 1 + _len(label) + _len(kind)
        if n + 2 > self._size:
            return 0
        return self._put(self._put(at + 1, label), kind)

    def _close(self, at):
        """Add to the pack the record that ends at `at`."""
        self._buf[self._end - 1] = 44  # a comma
        self._end = self._put(at, b"}]")
        return True

    def _put(self, at, what):
        end = at + _len(what)
        self._buf[at:end] = what
        return end


def _check_name(name, first):
    """Raise ValueError unless `name` has only the characters of a name.

    The first `first` of them must be letters or digits.
    """
    for i, c in enumerate(name):
        letter = 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122
        if not letter and (i < first or c not in b"-:./_"):
            break
    else:
        if name:
            return
    raise ValueError(f"name must be as in RFC 8428 section 4.5.1, not {name!r}")


def size_of(value, decimals):
    """Return the number of characters of a number. TypeError or ValueError if it is none."""
    if value.__class__ is not int or decimals.__class__ is not int or decimals < 0:
        load("checks").decimals(value, decimals)
    n = (2 if value < 0 else 1) + (1 if decimals else 0)
    if value > 0:  # negative, because the negative of every small int is a small int
        value = -value
    while value < -9 or decimals > 0:
        value = (value + 9) // 10
        decimals -= 1
        n += 1
    return n


def write(buf, at, value, decimals):
    """Write a number so that it ends before `at`."""
    n = -value if value > 0 else value
    while True:
        q = (n + 9) // 10
        at -= 1
        buf[at] = 48 + q * 10 - n
        n = q
        decimals -= 1
        if decimals == 0:
            at -= 1
            buf[at] = 46  # the point; there is always a digit before it
        elif decimals < 0 and not n:
            break
    if value < 0:
        buf[at - 1] = 45


def _escaped(value):
    """Return the size of a string between its quotes, in bytes (RFC 8259, section 7)."""
    n = _len(value)
    for c in value:
        if c < 32:
            n += 5
        elif c == 34 or c == 92:
            n += 1
    return n


def _write_text(buf, at, value):
    """Write a string from `at` on, and its closing quote."""
    for i in range(_len(value)):
        c = value[i]
        if c < 32:
            at = _write_control(buf, at, c)
            continue
        if c == 34 or c == 92:
            buf[at] = 92
            at += 1
        buf[at] = c
        at += 1
    buf[at] = 34


def _write_control(buf, at, c):
    buf[at : at + 4] = b"\\u00"
    buf[at + 4] = 48 + (c >> 4)
    buf[at + 5] = _HEX[c & 15]
    return at + 6
