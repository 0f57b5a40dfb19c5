"""Keep Wi-Fi connected from a polling loop: connect, watch the connection, and reconnect."""

import network

from flatmq.port import ticks_add, ticks_diff, ticks_ms

TRY_MS = 20000  # time for a connection and its address
KEPT_MS = 5000  # the same, with what is known from before a sleep
HELD_MS = 30000  # then DHCP is asked for an address, if the kept one was used until then
GRACE_MS = 5000  # after a loss: the driver of the ESP32 reconnects by itself
FIRST_MS = 1000  # before the second try; then it doubles, up to LAST_MS
LAST_MS = 60000
STUCK_MS = 180000  # with Wi-Fi but without a broker, until the Wi-Fi is restarted
_OFF_EVERY = 3  # failures in a row after which the radio is switched off and on
# What `status` says on a CYW43, and on an ESP32.
_WRONG = (-3, 15, 202, 204)  # of the password
_AWAY = (-2, 201)  # no network has the name


class Wifi:
    """A station in the network `ssid`, which is open if `password` is empty.

    `country` is a two-letter code, for the allowed channels. `power_save=False` keeps the radio
    awake: on the CYW43 of the Pico W, power saving loses packets and delays others by up to some
    100 ms. `up` is the last result of `poll`; `losses` counts lost connections. Nothing here
    blocks except switching the radio on: up to 2 s on a Pico W, which then loads its firmware.
    `kept` is None, or a Kept with what is known from before a sleep. Each cause for which there is
    no connection is printed once.
    """

    def __init__(
        self, ssid: str, password: str, country: str = "", power_save: bool = True
    ) -> None:
        if country:
            network.country(country)
        self._wlan = network.WLAN(network.WLAN.IF_STA)
        self._key = (ssid, password) if password else (ssid,)
        self._power_save = power_save
        self._trying = False
        self._failed = 0
        self._wait = FIRST_MS
        self._due = self._stuck = ticks_ms()
        self._said: list[str] = []  # causes that were printed since the last connection
        self.kept = None
        self.up = False
        self.losses = 0

    def poll(self, online: bool) -> bool:
        """Do what is due. Returns whether there is a connection with an address.

        `online`: whether the broker is reached. If it is not for three minutes, the Wi-Fi is
        restarted, in case that it carries nothing.
        """
        up = self._wlan.isconnected()
        if online or not up:
            self._stuck = ticks_ms()
        if up != self.up:
            self._changed(up)
        elif not up:
            if ticks_diff(ticks_ms(), self._due) >= 0:
                self._step()
        elif ticks_diff(ticks_ms(), self._stuck) > STUCK_MS or (
            self.kept and self.kept.fixed and ticks_diff(ticks_ms(), self._due) >= 0
        ):
            self.restart()
        return up

    def restart(self) -> None:
        """Switch the radio off, and on again later.

        For a connection that is reported as up but carries nothing, as on the CYW43 after
        an access point has vanished.
        """
        self._stuck = ticks_ms()
        self._drop(False)
        self._off()
        self._later()

    def off(self, seconds: int) -> None:
        """Switch the radio off before so many seconds of deep sleep.

        On a Pico W `lightsleep` requires that.
        """
        if self.kept and self.up:
            self.kept.keep(self._wlan, self._key[0], seconds)
        self._off()
        if hasattr(self._wlan, "deinit"):
            self._wlan.deinit()

    def _changed(self, up):
        self.up = up
        if up:
            self._failed = 0
            self._said.clear()
            self._wait = FIRST_MS
            self._due = ticks_add(ticks_ms(), HELD_MS)
        else:
            self.losses += 1
            self._trying = True
            self._due = ticks_add(ticks_ms(), GRACE_MS)

    def _step(self):
        try:
            if self._trying:  # the try has timed out
                self._fail()
            else:
                self._try()
        except Exception as error:  # ESP-IDF has RuntimeErrors too; a kept record may be spoiled
            self._say(repr(error))
            self._drop(True)
            self._off()
            self._later()

    def _try(self):
        if not self._wlan.active():
            self._wlan.active(True)
        if not self._power_save:
            self._wlan.config(pm=self._wlan.PM_NONE)
        self._trying = True
        if self.kept and self.kept.join(self._wlan, self._key):
            self._due = ticks_add(ticks_ms(), KEPT_MS)
        else:
            self._wlan.connect(*self._key)
            self._due = ticks_add(ticks_ms(), TRY_MS)

    def _fail(self):
        self._drop(True)
        self._failed += 1
        status = self._wlan.status()
        if self._failed % _OFF_EVERY:
            # Otherwise the ESP32 keeps trying, and answers the next connect with an error.
            self._wlan.disconnect()
            if status == network.STAT_CONNECTING:  # it says why only now
                status = self._wlan.status()
        else:
            self._off()
        if status in _WRONG:
            self._say("wrong password")
        elif status in _AWAY:
            self._say("no such network")
        elif status != network.STAT_CONNECTING:
            self._say("status " + str(status))
        self._later()

    def _say(self, cause):
        if cause not in self._said:
            self._said.append(cause)
            print(f"no Wi-Fi {self._key[0]}: {cause}")

    def _off(self):
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self._wlan.active(False)
        except (OSError, RuntimeError):
            pass

    def _drop(self, failed):
        if self.kept:
            self.kept.drop(failed)

    def _later(self):
        self._trying = False
        self._due = ticks_add(ticks_ms(), self._wait)
        self._wait = min(self._wait * 2, LAST_MS)
