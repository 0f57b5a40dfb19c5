"""A board's machine module with the pins of the examples.

They are a button that is pressed three times, and a lamp that says what it is set to.
"""

_LEVELS = [1, 1, 0, 1, 0, 1, 1, 0]


class Pin:
    """Pin 0 is the button, active low; any other is the lamp."""

    IN = 0
    OUT = 1

    def __init__(self, number, mode, value=None):
        self._number = number
        self._value = value

    def value(self, level=None):
        if level is not None:
            print("lamp", level)
            self._value = level
            return None
        return _LEVELS.pop(0) if self._number == 0 else self._value


def unique_id():
    return b"\x01\xab\xff"
