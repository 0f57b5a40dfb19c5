"""Topic names as text, also those that are not valid.

A valid name is its own text: it has no `#`. In the text of another one, `#` and two hexadecimal
digits stand for each byte that is `#`, U+0000 or not UTF-8, so that its bytes can be known again.
"""

from __future__ import annotations

_ESCAPES = {0: "#00", 35: "#23"} | {0xDC00 + byte: f"#{byte:02X}" for byte in range(128, 256)}
_REMEMBERED = 100_000


def text(name: bytes) -> str:
    """Return the text of a topic name."""
    return name.decode(errors="surrogateescape").translate(_ESCAPES)


class Texts(dict[bytes, str]):
    """The texts of topic names, each made once while it is known."""

    def __missing__(self, name: bytes) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        self[name] = made = text(name)
        return made
