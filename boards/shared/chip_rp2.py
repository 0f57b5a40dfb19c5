"""The functions of an RP2040 or RP2350 chip: its temperature sensor, watchdog and sleep."""

import os

import machine

from flatmq.port import ticks_add, ticks_diff, ticks_ms
from flatmq.senml import label

# Which chip it is. Pico SDK, hardware/regs/sysinfo.h: CHIP_ID; the part is in its bits 12 to 27.
_CHIP_ID = 0x40000000
_RP2350 = 4
KEPT = "/kept"
_SLICE_MS = 4000  # of sleep between two feeds
_WATCHDOG = (0x40058000, 0x400D8000)  # its registers, the first is CTRL: RP2040, RP2350
_CLEAR = 0x3000  # bits written at this offset are cleared
_ENABLE = 1 << 30


class Chip:
    """An RP2040 or RP2350. It is also a sensor, for the temperature of the chip.

    The watchdog is set close to its maximum: 8.3 s on the RP2040, 16.7 s on the RP2350. lwIP gives
    up a name lookup after some 7 s for each server that does not answer.
    """

    kind = "pico"
    spool_head = 512  # 4 times the prog size of the file system

    def __init__(self) -> None:
        rp2350 = machine.mem32[_CHIP_ID] >> 12 & 0xFFFF == _RP2350
        self._adc = machine.ADC(machine.ADC.CORE_TEMP)
        self._temperature = label("chip/temp", "Cel")
        self.watchdog = _WATCHDOG[rp2350]
        self._timeout = 16700 if rp2350 else 8300
        self._wdt: machine.WDT | None = None

    def start(self) -> None:
        """Do nothing: the sensor is always ready."""

    def read(self, pack) -> bool:
        """Append the chip's temperature in degrees Celsius with two decimals.

        RP2040 datasheet, section 4.9.5: 0.706 V at 27 degrees, and 1.721 mV less per
        degree; full scale of the ADC is 3.3 V.
        """
        microvolts = self._adc.read_u16() * 50355 // 1000  # 3300000 / 65535
        return pack.number(self._temperature, 2700 - (microvolts - 706000) * 100 // 1721, 2)

    def watch(self) -> None:
        """Start the watchdog."""
        self._wdt = machine.WDT(timeout=self._timeout)

    def feed(self) -> None:
        """Feed the watchdog."""
        if self._wdt:
            self._wdt.feed()

    def release(self) -> None:
        """Stop the watchdog, for whoever interrupted the sketch."""
        if self._wdt:
            machine.mem32[self.watchdog + _CLEAR] = _ENABLE
            self._wdt = None

    def recall(self) -> bytes:
        """Return what was kept over deep sleep, which ends like the watchdog resets.

        After power was lost, nobody knows how old it is: it is removed.
        """
        try:
            if machine.reset_cause() == machine.WDT_RESET:
                with open(KEPT, "rb") as f:
                    return f.read()
            os.remove(KEPT)
        except OSError:
            pass
        return b""

    def keep(self, data: bytes) -> None:
        """Keep bytes over deep sleep, in a file. Raises OSError if it cannot be written."""
        with open(KEPT, "wb") as f:
            f.write(data)

    def sleep(self, ms: int) -> None:
        """Sleep, then reboot.

        It sleeps in slices, because the watchdog keeps running, and a timer alarm has 32
        bits of microseconds.
        """
        end = ticks_add(ticks_ms(), ms)
        while ticks_diff(end, ticks_ms()) > _SLICE_MS:
            self.feed()
            machine.lightsleep(_SLICE_MS)
        self.feed()
        machine.deepsleep(max(1, ticks_diff(end, ticks_ms())))
