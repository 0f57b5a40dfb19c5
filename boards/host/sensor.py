"""A sensor of this machine: a temperature if there is one, else its load, else its clock.

sensor = open_sensor()
sensor.name         b"millicelsius", b"load_hundredths" or b"clock_ms"
sensor.read()       an int; allocates nothing on MicroPython
"""

import os

from flatmq.port import ticks_ms

THERMAL = "/sys/class/thermal"
HWMON = "/sys/class/hwmon"
LOAD = "/proc/loadavg"


class FileSensor:
    """The first number in a text file, read again each time.

    A decimal point is skipped, so that "0.14" is 14.
    """

    def __init__(self, name: bytes, path: str) -> None:
        self.name = name
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - stays open
        self._buffer = bytearray(16)

    def read(self) -> int:
        """Return the number. OSError if the file cannot be read."""
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
    """The machine's clock in milliseconds, which wraps; for a machine with no other sensor."""

    name = b"clock_ms"
    path = "the clock"

    def read(self) -> int:
        """Return the milliseconds."""
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
    """Return the first sensor that can be read."""
    for name, path in _candidates():
        try:
            sensor = FileSensor(name, path)
            sensor.read()
            return sensor
        except OSError:
            pass
    return Clock()
