"""The sketch of the Pico W, with its heap and its counters as a sensor."""

import gc

from machine import Pin

from chip_rp2 import Chip
from flatmq.senml import label
from settings import load
from station import Station
from wifi import Wifi


class Heap:
    """The bytes in use, the largest free piece, and what the station counts."""

    def __init__(self):
        names = ("used", "piece", "lost", "failed", "connects")
        self._labels = tuple(label(name) for name in names)
        self.station = None

    def start(self):
        """Do nothing: it is always ready."""

    def read(self, pack):
        gc.collect()
        station = self.station
        used, piece, lost, failed, connects = self._labels
        return (
            pack.number(used, gc.mem_alloc())
            and pack.number(piece, self._piece())
            and pack.number(lost, station.lost)
            and pack.number(failed, station.failed)
            and pack.number(connects, station.client.stats.connects)
        )

    def _piece(self):
        good, bad = 0, gc.mem_free() + 1
        while bad - good > 32:
            middle = (good + bad) // 2
            try:
                bytearray(middle)
                good = middle
            except MemoryError:
                bad = middle
        gc.collect()
        return good


settings = load("wifi.ssid", "broker.host")
heap = Heap()
heap.station = Station(
    settings,
    Chip(),
    [heap],
    led=Pin("LED", Pin.OUT),
    wifi=Wifi(**settings["wifi"], power_save=False),
    pack=512,
)
heap.station.run()
