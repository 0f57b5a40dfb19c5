"""A sensor of the machine that runs this: a temperature where there is one, else its load.

sensor = open_sensor()
sensor.name         b"millicelsius", b"load_hundredths" or b"clock_ms"
sensor.read()       an int; allocates nothing on a board's interpreter
"""

import os

from flatmq.port import ticks_ms

THERMAL = "/sys/class/thermal"
HWMON = "/sys/class/hwmon"
LOAD = "/proc/loadavg"


class FileSensor:
    """The first number in a file of text, read again each time; a decimal point is passed over,
    so that "0.14" is 14."""

    def __init__(self, name: bytes, path: str) -> None:
        self.name = name
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - open for good
        self._buffer = bytearray(16)

    def read(self) -> int:
        """The number. OSError when the machine does not give it."""
        self._file.seek(0)
        size = self._file.readinto(self._buffer) or 0
        value = 0
        for i in range(size):
            c = self._buffer[i]
            if 48 <= c <= 57:
                value = value * 10 + c - 48
            elif c not in b"-.":
                break
        return -value if self._buffer[0] == 45 else value


class Clock:
    """Where a machine shows neither: the milliseconds of its clock, which wraps."""

    name = b"clock_ms"
    path = "the clock"

    def read(self) -> int:
        """Milliseconds."""
        return ticks_ms()


def _candidates():
    for folder, first, last in ((THERMAL, "thermal_zone", "temp"), (HWMON, "temp", "_input")):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if name.startswith(first):
                yield b"millicelsius", f"{folder}/{name}/{last}"
            elif folder == HWMON:
                for file in sorted(os.listdir(f"{folder}/{name}")):
                    if file.startswith(first) and file.endswith(last):
                        yield b"millicelsius", f"{folder}/{name}/{file}"
    yield b"load_hundredths", LOAD


def open_sensor() -> "FileSensor | Clock":
    """The first one that can be read."""
    for name, path in _candidates():
        try:
            sensor = FileSensor(name, path)
            sensor.read()
            return sensor
        except OSError:
            pass
    return Clock()
