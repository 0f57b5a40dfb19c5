"""neopixel: one WS2812, which is a pin that is lit or dark to the test."""

import bench


class NeoPixel:
    def __init__(self, pin, n):
        self._pin = pin
        self._colour = None

    def __setitem__(self, i, colour):
        self._colour = colour

    def write(self):
        bench.use("led")
        bench.pins[self._pin.name] = int(self._colour != (0, 0, 0))
