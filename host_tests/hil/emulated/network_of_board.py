"""`network` of an emulated board: a station whose joining takes a while."""

import time

STA_IF = 0
STAT_CONNECTING = 1
JOINING_MS = 150

desk = None
known = ("", "")  # the network that is there: name, password
_joined = None  # when, in ticks_ms; None while it is not


class WLAN:
    """The station; there is one."""

    IF_STA = STA_IF

    def __init__(self, interface=STA_IF):
        if interface != STA_IF:
            raise ValueError("no such interface")

    def active(self, on=None):
        global _active
        if on is not None:
            _active = bool(on)
            if not on:
                self.disconnect()
        return _active

    def connect(self, ssid, key=None):
        global _joined
        if not _active:
            raise OSError("not active")
        if (ssid, key or "") == known:
            desk.ask("air on")
            _joined = time.ticks_ms()

    def disconnect(self):
        global _joined
        if _joined is not None:
            desk.ask("air off")
        _joined = None

    def isconnected(self):
        return _joined is not None and time.ticks_diff(time.ticks_ms(), _joined) >= JOINING_MS

    def status(self):
        return 3 if self.isconnected() else STAT_CONNECTING

    def ifconfig(self):
        return ("127.0.0.1", "255.0.0.0", "127.0.0.1", "127.0.0.1")


_active = False
