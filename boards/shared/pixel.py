"""Use a WS2812 like a plain LED."""

import neopixel

_DARK = (0, 0, 0)
_LIT = (0, 24, 0)


class Pixel:
    """A WS2812 at a pin, with the one method of Pin that a sketch uses."""

    def __init__(self, pin) -> None:
        self._pixel = neopixel.NeoPixel(pin, 1)

    def value(self, on: int) -> None:
        """Switch the LED on or off."""
        self._pixel[0] = _LIT if on else _DARK
        self._pixel.write()
