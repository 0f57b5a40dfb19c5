"""What does an ESP32 do by itself? Its temperature, its watchdog, its sleep."""

import esp32
import machine

from flatmq.senml import label

_TIMEOUT = 30000  # ms: a name lookup may try several servers, some seconds each
_RELEASED = 3600000  # ms


class Chip:
    """The chip itself."""

    kind = "esp32"
    spool_head = 128  # 4 times the prog size of the file system

    def __init__(self) -> None:
        self._temperature = label("chip/temp", "Cel")
        self._wdt: machine.WDT | None = None

    def start(self) -> None:
        """As a sensor: it is always ready."""

    def read(self, pack) -> bool:
        """As a sensor: whole degrees on the S2, S3, C3 and C6, and on the ESP32 itself those of
        Fahrenheit, written in tenths of a degree Celsius."""
        if hasattr(esp32, "mcu_temperature"):
            return pack.number(self._temperature, int(esp32.mcu_temperature()))
        return pack.number(self._temperature, (esp32.raw_temperature() - 32) * 50 // 9, 1)

    def watch(self) -> None:
        """Start the watchdog: 30 s, as a name lookup blocks for as long as its servers take."""
        self._wdt = machine.WDT(timeout=_TIMEOUT)

    def feed(self) -> None:
        """Tell the watchdog that all is well."""
        if self._wdt:
            self._wdt.feed()

    def release(self) -> None:
        """Give the one who interrupted the sketch an hour: it cannot be stopped."""
        if self._wdt:
            machine.WDT(timeout=_RELEASED).feed()
            self._wdt = None

    def sleep(self, ms: int) -> None:
        """Sleep, and begin anew. The watchdog sleeps as well."""
        machine.deepsleep(ms)
