"""The functions of an ESP32 chip: its temperature sensor, its watchdog and its sleep."""

import esp32
import machine

from flatmq.senml import label

_TIMEOUT = 30000  # ms: a name lookup may try several servers, some seconds each
_RELEASED = 3600000  # ms


class Chip:
    """An ESP32. It is also a sensor, for the temperature of the chip."""

    kind = "esp32"
    spool_head = 128  # 4 times the prog size of the file system

    def __init__(self) -> None:
        self._temperature = label("chip/temp", "Cel")
        self._wdt: machine.WDT | None = None

    def start(self) -> None:
        """Do nothing: the sensor is always ready."""

    def read(self, pack) -> bool:
        """Append the chip's temperature in degrees Celsius.

        It is in whole degrees on the S2, S3, C3 and C6; on the original ESP32 it has one
        decimal, converted from whole degrees Fahrenheit.
        """
        if hasattr(esp32, "mcu_temperature"):
            return pack.number(self._temperature, int(esp32.mcu_temperature()))
        return pack.number(self._temperature, (esp32.raw_temperature() - 32) * 50 // 9, 1)

    def watch(self) -> None:
        """Start the watchdog with 30 s, because a name lookup blocks until its servers answer."""
        self._wdt = machine.WDT(timeout=_TIMEOUT)

    def feed(self) -> None:
        """Feed the watchdog."""
        if self._wdt:
            self._wdt.feed()

    def release(self) -> None:
        """Give whoever interrupted the sketch an hour: the watchdog cannot be stopped."""
        if self._wdt:
            machine.WDT(timeout=_RELEASED).feed()
            self._wdt = None

    def recall(self) -> bytes:
        """Return what was kept over deep sleep; b"" after any other reset."""
        if machine.reset_cause() != machine.DEEPSLEEP_RESET:
            return b""
        return machine.RTC().memory()

    def keep(self, data: bytes) -> None:
        """Keep up to 2048 bytes over deep sleep, in RTC memory."""
        machine.RTC().memory(data)

    def sleep(self, ms: int) -> None:
        """Sleep, then reboot. The watchdog sleeps, too."""
        machine.deepsleep(ms)
