"""A WS2812 in place of a plain LED."""

import neopixel

_DARK = (0, 0, 0)
_LIT = (0, 24, 0)


class Pixel:
    """The one at a pin, with the call of a Pin that a sketch makes."""

    def __init__(self, pin) -> None:
        self._pixel = neopixel.NeoPixel(pin, 1)

    def value(self, on: int) -> None:
        """Lit, or dark."""
        self._pixel[0] = _LIT if on else _DARK
        self._pixel.write()
