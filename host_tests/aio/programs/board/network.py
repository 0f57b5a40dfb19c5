"""A board's network module with a radio that connects as soon as it is on and is asked to."""

STA_IF = 0
WLAN_KEY = ("home", "secret")


class WLAN:
    """The radio, at `which` interface."""

    def __init__(self, which):
        assert which == STA_IF
        self._active = self._connected = False

    def active(self, on):
        """Turn it on or off."""
        self._active = on
        self._connected = self._connected and on

    def connect(self, ssid, key):
        """Connect if the key is right."""
        self._connected = self._active and (ssid, key) == WLAN_KEY

    def disconnect(self):
        """End the connection."""
        self._connected = False

    def isconnected(self):
        return self._connected
