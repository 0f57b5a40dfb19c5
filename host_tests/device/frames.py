"""The functions of a compiled module whose frame comes from the heap on every call.

Reads .mpy files of version 6, as py/persistentcode.c and py/bc.h of MicroPython define them.
"""

from collections.abc import Iterator
from pathlib import Path

STACK_WORDS = 11  # VM_MAX_STATE_ON_STACK: a larger frame goes to the heap
_TRY_WORDS = 3  # what each level of nested try adds
_OBJECTS_WITHOUT_DATA = 5  # the types of constants below this: None, True and so on
_TEXTS = (5, 6)  # str and bytes, which end with a zero byte that is not counted
_TUPLE = 10
# Of strings that are part of any interpreter
_NAMES = {7: "<module>", 9: "__call__", 17: "__init__", 71: "close", 74: "count", 82: "difference"}
_NAMES |= {86: "get", 125: "read", 128: "remove", 129: "replace", 138: "send", 149: "step"}
_NAMES |= {159: "update"}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def take(self, n: int) -> bytes:
        self._at += n
        assert self._at <= len(self._data), "cut short"
        return self._data[self._at - n : self._at]

    def number(self) -> int:
        value = 0
        while True:
            c = self.byte()
            value = value << 7 | c & 127
            if c < 128:
                return value

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def on_heap(path: Path) -> set[str]:
    """The names of those in a .mpy file, each with the names of what it is in."""
    file = _Reader(path.read_bytes())
    assert file.take(2) == b"M\x06", f"{path} is not a .mpy file of version 6"
    file.take(2)
    names = file.number()
    constants = file.number()
    table = [_name(file) for _ in range(names)]
    for _ in range(constants):
        _pass_constant(file)
    found = set(_code(file, table, ""))
    assert file.at_end, f"{path} goes on after its code"
    return found


def _name(file: _Reader) -> str:
    n = file.number()
    if n & 1:
        return _NAMES.get(n >> 1, f"static string {n >> 1}")
    return file.take((n >> 1) + 1)[:-1].decode()


def _pass_constant(file: _Reader) -> None:
    kind = file.byte()
    if kind < _OBJECTS_WITHOUT_DATA:
        return
    n = file.number()
    if kind == _TUPLE:
        for _ in range(n):
            _pass_constant(file)
    else:
        file.take(n + 1 if kind in _TEXTS else n)


def _code(file: _Reader, table: list[str], outer: str) -> Iterator[str]:
    head = file.number()
    assert head & 3 == 0, "not bytecode"
    name, asks = _function(_Reader(file.take(head >> 3)), table, outer)
    if asks:
        yield name
    if head & 4:
        inside = "" if name == "<module>" else name + "."
        for _ in range(file.number()):
            yield from _code(file, table, inside)


def _function(code: _Reader, table: list[str], outer: str) -> tuple[str, bool]:
    """Return its name, and whether a call asks the heap for a frame: a generator always does."""
    c = code.byte()
    state = c >> 3 & 15
    tries = c >> 2 & 1
    flags = more = 0
    while c & 128:
        c = code.byte()
        state |= (c & 0x30) << 2 * more
        tries |= (c & 2) << more
        flags |= (c >> 6 & 1) << more
        more += 1
    while code.byte() & 128:  # how long the rest of the prelude is
        pass
    words = state + 1 + _TRY_WORDS * tries
    return outer + table[code.number()], bool(flags & 1) or words > STACK_WORDS
