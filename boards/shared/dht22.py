"""DHT22 (AM2302): temperature and humidity. Takes the bytes that `dht` has read, where its
`temperature` and `humidity` would make floats: nothing is allocated."""

import dht

from flatmq.senml import label


class DHT22:
    """One at a pin. It wants two seconds between two readings; each takes some 25 ms, most of
    them with interrupts off."""

    def __init__(self, driver) -> None:
        self._driver = driver
        self._temperature = label("dht22/temp", "Cel")
        self._humidity = label("dht22/humidity", "%RH")

    def start(self) -> None:
        """It measures when it is read."""

    def read(self, pack) -> bool:
        """Tenths. OSError when it does not answer, Exception when the checksum is wrong."""
        self._driver.measure()
        buf = self._driver.buf
        value = (buf[2] & 127) << 8 | buf[3]
        done = pack.number(self._temperature, -value if buf[2] & 128 else value, 1)
        return pack.number(self._humidity, buf[0] << 8 | buf[1], 1) and done


def probe(pin) -> "DHT22 | None":
    """The one at a pin, None when it does not answer."""
    driver = dht.DHT22(pin)
    try:
        driver.measure()
    except Exception:  # OSError, or one for the checksum, which has no class of its own
        return None
    return DHT22(driver)
