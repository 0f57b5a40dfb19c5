"""DS18B20: temperature over one wire.

Reads the register as an integer instead of using `ds18x20.read_temp`, which returns a float, so
that nothing is allocated.
"""

import ds18x20
import onewire

from flatmq.senml import label


class DS18B20:
    """All DS18B20s on one bus, each named by its number: "ds18b20/28ff641e8216c3a1/temp"."""

    def __init__(self, bus, roms) -> None:
        self._bus = bus
        self._buf = b""  # what a sensor answers
        self._all = []
        for rom in roms:
            number = "".join(f"{byte:02x}" for byte in rom)
            self._all.append((rom, label(f"ds18b20/{number}/temp", "Cel")))

    def start(self) -> None:
        """Start a measurement, which takes 750 ms."""
        self._bus.convert_temp()

    def read(self, pack) -> bool:
        """Append degrees Celsius in sixteenths, exactly: four decimals.

        Returns False also if a sensor is gone, has not measured, or a checksum is wrong; the
        others are appended.
        """
        done = True
        for i in range(len(self._all)):
            done = self._read(pack, i) and done
        return done

    def _read(self, pack, i):
        rom, name = self._all[i]
        return self._answers(rom) and pack.number(name, self._sixteenths() * 625, 4)

    def _answers(self, rom):
        try:
            self._buf = self._bus.read_scratch(rom)
        except Exception:  # ds18x20 raises a plain one for a wrong checksum
            return False
        return self._measured(self._buf)

    def _measured(self, buf):
        # Power on: 85 degrees, and 12 in a byte that is 16 if it has measured them. A bus that
        # is held down: zeros, whose checksum is right; the configuration is never 0.
        return buf[4] and (buf[0] != 0x50 or buf[1] != 5 or buf[6] != 12)

    def _sixteenths(self):
        value = self._buf[1] << 8 | self._buf[0]
        return value - 65536 if value > 32767 else value


def probe(pin) -> "DS18B20 | None":
    """Return the sensors that answer at a pin, None if there are none.

    The pin needs a pull-up of 4.7 k.
    """
    for _ in range(2):  # the bus may fail once
        try:
            bus = ds18x20.DS18X20(onewire.OneWire(pin))
            roms = [rom for rom in bus.scan() if rom[0] == 0x28]
        except (OSError, onewire.OneWireError):
            continue
        if roms:
            return DS18B20(bus, roms)
    return None
