"""DHT22 (AM2302): temperature and humidity.

Uses the bytes that `dht` has read instead of its methods, which return floats, so that nothing is
allocated.
"""

import dht

from flatmq.senml import label


class DHT22:
    """A DHT22 at a pin.

    It needs two seconds between two readings. Each takes some 25 ms, mostly with interrupts
    off.
    """

    def __init__(self, driver) -> None:
        self._driver = driver
        self._temperature = label("dht22/temp", "Cel")
        self._humidity = label("dht22/humidity", "%RH")

    def start(self) -> None:
        """Do nothing: it measures when it is read."""

    def read(self, pack) -> bool:
        """Append degrees Celsius and percent, each with one decimal.

        OSError if the sensor does not answer, Exception if the checksum is wrong.
        """
        self._driver.measure()
        buf = self._driver.buf
        value = (buf[2] & 127) << 8 | buf[3]
        done = pack.number(self._temperature, -value if buf[2] & 128 else value, 1)
        return pack.number(self._humidity, buf[0] << 8 | buf[1], 1) and done


def probe(pin) -> "DHT22 | None":
    """Return the DHT22 at a pin, None if there is no answer."""
    driver = dht.DHT22(pin)
    try:
        driver.measure()
    except OSError:
        return None
    except Exception:  # a wrong checksum: it is there
        pass
    return DHT22(driver)
