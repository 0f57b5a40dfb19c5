"""A fake network.WLAN with the habits of the two radios.

CYW43: connects when asked to, and not again by itself. ESP32: goes on trying until `disconnect`,
and raises OSError for a `connect` meanwhile; it says why only after that, and the CYW43
only before. What is kept over sleep is seen in how they join.
"""

import bench

STAT_CONNECTING = 1001 if bench.esp32 else 1


def country(code):
    bench.wifi.append("country " + code)


class WLAN:
    IF_STA = 0
    PM_NONE = 16

    def __init__(self, interface):
        self._active = self._wanted = self._up = False
        self._key = None
        self._address = None  # unless DHCP gives it

    def active(self, on=None):
        if on is None:
            return self._active
        bench.wifi.append("on" if on else "off")
        self._active = on
        if not on:
            self._wanted = self._up = False

    def config(self, name=None, *, pm=None, channel=None):
        if name == "channel":
            return bench.access_point[1]
        if pm is not None:
            bench.wifi.append("pm=" + str(pm))
        if channel is not None:
            bench.use("channel")
            bench.wifi.append("channel=" + str(channel))

    def connect(self, ssid=None, key=None, bssid=None, channel=None):
        bench.use("wifi")
        if bench.esp32 and self._wanted:
            raise OSError("Wifi Internal Error")
        asked = bssid and (bssid.hex(), channel)
        if asked:
            bench.use("channel")
        bench.wifi.append("connect@" + str(channel) if asked else "connect")
        self._wanted = True
        self._key = key or self._key
        self._up = self._hears() and (not asked or asked == bench.access_point)

    def _hears(self):
        return bench.in_range and bench.password in (None, self._key)

    def status(self):
        if bench.esp32:
            return STAT_CONNECTING if self._wanted else 202 if bench.in_range else 201
        return 0 if not self._wanted else -3 if bench.in_range else -2

    def ifconfig(self, to=None):
        if to is None:
            return (self._address or bench.address, "255.255.255.0", "10.0.0.1", "10.0.0.1")
        bench.wifi.append(to[0])
        self._address = to[0]

    def ipconfig(self, *, dhcp4):
        bench.wifi.append("dhcp")
        self._address = None

    if not bench.esp32:

        def ioctl(self, command, buf):
            if command == 46:  # WLC_GET_BSSID
                buf[:] = bytes.fromhex(bench.access_point[0])

    def disconnect(self):
        bench.wifi.append("disconnect")
        self._wanted = self._up = False

    def isconnected(self):
        if self._up and not bench.in_range:
            self._up = False
        if bench.esp32 and self._wanted and self._hears():
            self._up = True
        return self._up
