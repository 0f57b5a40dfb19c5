"""A fake network.WLAN with the habits of the two radios.

CYW43: connects when asked to, and not again by itself. ESP32: goes on trying until `disconnect`,
and raises OSError for a `connect` meanwhile.
"""

import bench


def country(code):
    bench.wifi.append("country " + code)


class WLAN:
    IF_STA = 0
    PM_NONE = 16

    def __init__(self, interface):
        self._active = self._wanted = self._up = False

    def active(self, on=None):
        if on is None:
            return self._active
        bench.wifi.append("on" if on else "off")
        self._active = on
        if not on:
            self._wanted = self._up = False

    def config(self, *, pm):
        bench.wifi.append("pm=" + str(pm))

    def connect(self, ssid, key=None):
        if bench.esp32 and self._wanted:
            raise OSError("Wifi Internal Error")
        bench.wifi.append("connect")
        self._wanted = True
        self._up = bench.in_range

    def disconnect(self):
        bench.wifi.append("disconnect")
        self._wanted = self._up = False

    def isconnected(self):
        if self._up and not bench.in_range:
            self._up = False
        if bench.esp32 and self._wanted and bench.in_range:
            self._up = True
        return self._up
