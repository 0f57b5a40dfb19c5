"""Keep the access point and the address over deep sleep, so that a board is online sooner.

Without them, each wake looks for the access point on all channels and asks for an address by DHCP,
which takes seconds. They are dropped as soon as a join with them fails.
"""

import binascii
import json

LEASE_S = 1800  # an address is used for that long without DHCP: half of a lease of an hour
_AWAKE_S = 40  # at most, between two sleeps with a kept address
_GET_BSSID = 23 << 1  # WLC_GET_BSSID, as CYW43's ioctl takes it


class Kept:
    """The access point and the address that a board had when it fell asleep.

    chip   a Chip, which stores it: `recall()` returns bytes, and `keep(data)` replaces them
    boot   the number of this boot, by which the age of an address is known

    `fixed` is True while the board uses a kept address. Nobody renews its lease then.
    """

    def __init__(self, chip, boot: int) -> None:
        self._chip = chip
        self._boot = boot
        self.fixed = False
        self._data = chip.recall()
        self._record = None
        try:
            record = json.loads(self._data)
            if len(record) == 6:
                self._record = record
        except (ValueError, TypeError):  # there is none, or another program's
            pass

    def join(self, wlan, key) -> bool:
        """Begin to join as before the sleep. Returns False if nothing is kept.

        `key` is the name of the network, and its password if it has one. Raises what `wlan`
        raises; the caller then calls `drop`.
        """
        if not (self._record and self._record[0] == key[0]):
            if self.fixed:
                self.fixed = False
                wlan.ipconfig(dhcp4=True)
            return False
        _, bssid, channel, _, last, address = self._record
        if address and self._boot <= last:
            self.fixed = True
            wlan.ifconfig(tuple(address))
        if hasattr(wlan, "ioctl"):  # CYW43
            wlan.connect(*key, bssid=binascii.unhexlify(bssid), channel=channel)
        else:
            # ESP32: a scan begins at the channel that is set. `connect` with a name forgets it.
            wlan.connect(*key)
            wlan.disconnect()
            wlan.config(channel=channel)
            wlan.connect()
        return True

    def drop(self) -> None:
        """Forget everything. The next `join` goes back to DHCP."""
        if self._record:
            self._record = None
            self._store(b"")

    def keep(self, wlan, name, seconds: int) -> None:
        """Keep what `wlan` knows of the network `name`, for the boots after `seconds` of sleep."""
        boots = LEASE_S // (seconds + _AWAKE_S)
        try:
            last, address = 0, None
            if not self.fixed and boots:
                last, address = self._boot + boots, wlan.ifconfig()
            elif self.fixed and self._record[3] == seconds:  # DHCP has not given it again
                last, address = self._record[4:]
            bssid = bytearray(6)
            if hasattr(wlan, "ioctl"):
                wlan.ioctl(_GET_BSSID, bssid)
            bssid, channel = binascii.hexlify(bssid).decode(), wlan.config("channel")
            record = [name, bssid, channel, seconds, last, address]
            self._store(json.dumps(record).encode())
        except (OSError, RuntimeError) as error:  # RuntimeError: unknown errors of ESP-IDF
            print(f"nothing kept over sleep: {error!r}")

    def _store(self, data):
        if data != self._data:
            self._data = data
            try:
                self._chip.keep(data)
            except OSError as error:
                print(f"nothing kept over sleep: {error!r}")
