"""BME280: temperature, pressure and humidity over I2C. MicroPython has no driver for it.

The integer formulas are from Bosch's datasheet (BST-BME280-DS001, section 4.2.3, and its 32-bit
formula for the pressure). Products that might not be small ints on a 32-bit board, within the
sensor's range, are shifted first, so that nothing is allocated.
"""

import struct

from flatmq.senml import label

_ADDRESSES = (0x76, 0x77)
_ID = 0xD0
_CHIP = 0x60
_CTRL_HUM = 0xF2
_CTRL_MEAS = 0xF4
_DATA = 0xF7
_RESET = 0x80000  # pressure and temperature before the first measurement


class BME280:
    """A BME280 at `address` of the bus `i2c`."""

    def __init__(self, i2c, address: int) -> None:
        self._i2c = i2c
        self._address = address
        self._data = bytearray(8)
        self._once = b"\x25"  # 1 sample of temperature and of pressure, forced mode
        low = i2c.readfrom_mem(address, 0x88, 26)
        self.t = struct.unpack_from("<Hhh", low, 0)
        self.p = struct.unpack_from("<Hhhhhhhhh", low, 6)
        high = i2c.readfrom_mem(address, 0xE1, 7)
        h2, h3, h6 = struct.unpack_from("<hB3xb", high, 0)
        h4, h5 = struct.unpack("bb", bytes((high[3], high[5])))
        h4 = h4 << 4 | high[4] & 15
        self.h = (low[25], h2, h3, h4, h5 << 4 | high[4] >> 4, h6)
        self._names = (
            label("bme280/temp", "Cel"),
            label("bme280/pressure", "Pa"),
            label("bme280/humidity", "%RH"),
        )

    def start(self) -> None:
        """Start a measurement, which takes 10 ms. OSError if the sensor is gone."""
        # 1 sample of humidity, each time: a sensor that had no power has forgotten it.
        self._i2c.writeto_mem(self._address, _CTRL_HUM, b"\1")
        self._i2c.writeto_mem(self._address, _CTRL_MEAS, self._once)

    def read(self, pack) -> bool:
        """Append degrees Celsius with two decimals, whole pascals, and percent with two decimals.
        Returns False also if it has measured nothing. OSError if the sensor is gone."""
        self._i2c.readfrom_mem_into(self._address, _DATA, self._data)
        if self._raw(0) == self._raw(3) == _RESET:  # it had no power for a moment
            return False
        fine = fine_temperature(self.t, self._raw(3))
        done = pack.number(self._names[0], fine * 5 + 128 >> 8, 2)
        value = pressure(self.p, fine, self._raw(0))
        done = pack.number(self._names[1], value) and done
        value = self._humidity(fine) * 25 >> 8
        return pack.number(self._names[2], value, 2) and done

    def _humidity(self, fine):
        return humidity(self.h, fine, self._data[6] << 8 | self._data[7])

    def _raw(self, at):
        """Return the 20-bit number at `at` of the data."""
        d = self._data
        return d[at] << 12 | d[at + 1] << 4 | d[at + 2] >> 4


def fine_temperature(t, raw):
    """Return the temperature in 1/5120 of a degree, which the other formulas need."""
    a = (raw >> 4) - t[0]
    return (((raw >> 3) - (t[0] << 1)) * t[1] >> 11) + ((a * a >> 12) * t[2] >> 14)


def pressure(p, fine, raw):
    """Return the pressure in Pa; 0 for calibration data that would cause a division by zero."""
    fine = (fine >> 1) - 64000
    square = (fine >> 3) * (fine >> 3)
    raw = 1048576 - raw
    raw -= ((square >> 9) * p[5] + (fine * p[4] << 1) >> 2) + (p[3] << 16) >> 12
    scale = ((p[2] * (square >> 11) >> 3) + p[1] * (fine >> 1)) >> 18
    scale = p[0] + (scale * p[0] >> 15)
    if scale <= 0:
        return 0
    # raw * 6250 // scale, whose product would not be a small int
    raw = raw // scale * 6250 + (raw - raw // scale * scale) * 6250 // scale
    square = (raw >> 3) * (raw >> 3) >> 13
    return raw + ((p[8] * square >> 12) + ((raw >> 2) * p[7] >> 13) + p[6] >> 4)


def humidity(h, fine, raw):
    """Return the humidity in 1/1024 of a percent."""
    f = fine - 76800
    scale = ((f * h[5] >> 10) * ((f * h[2] >> 11) + 32768) >> 10) + 2097152
    value = (raw << 14) - (h[3] << 20) - h[4] * f + 16384 >> 15
    value *= scale * h[1] + 8192 >> 14
    value -= ((value >> 15) * (value >> 15) >> 7) * h[0] >> 4
    return min(max(value, 0), 419430400) >> 12


def probe(i2c) -> "BME280 | None":
    """Return the BME280 on a bus, None if there is none."""
    for address in _ADDRESSES * 2:  # the bus may fail once
        try:
            if address in i2c.scan() and i2c.readfrom_mem(address, _ID, 1)[0] == _CHIP:
                return BME280(i2c, address)
        except OSError:
            pass
    return None
