"""Keep the access point and the address over deep sleep, so that a board is online sooner.

Without them, each wake looks for the access point on all channels and asks for an address by DHCP,
which takes seconds. They are dropped as soon as a join with them fails. After each further failure
in a row, twice as many wakes pass before they are tried again.
"""

import binascii
import json

LEASE_S = 1800  # an address is used for that long without DHCP: half of a lease of an hour
_AWAKE_S = 40  # at most, between two sleeps with a kept address
_GET_BSSID = 23 << 1  # WLC_GET_BSSID, as CYW43's ioctl takes it
_MOST_FAILURES = 10  # then it is tried at every 1024th wake


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
        self._tried = False  # at this boot, and not dropped since
        self._failures = 0  # of joins with what was kept, in a row
        self._record: dict = {}
        try:
            record = json.loads(self._data)
            if isinstance(record, dict) and isinstance(record.get("failures"), int):
                self._record = record
        except ValueError:  # there is none
            pass

    def join(self, wlan, key) -> bool:
        """Begin to join as before the sleep. Returns False if nothing can be used.

        `key` is the name of the network, and its password if it has one. Raises what `wlan`
        raises, and any exception for a spoiled record; the caller then calls `drop`.
        """
        record = self._record
        if record and record.get("ssid") != key[0]:
            self._record = {}
        elif record:
            self._tried = True  # one of another form raises here, and is dropped
            self._tried = self._boot >= record.get("from", 0)
        if self._tried:
            if record["address"] and self._boot <= record["last"]:
                self.fixed = True
                wlan.ifconfig(tuple(record["address"]))
            _connect(wlan, key, record["bssid"], record["channel"])
            return True
        if self.fixed:
            self.fixed = False
            wlan.ipconfig(dhcp4=True)
        return False

    def drop(self, failed: bool) -> None:
        """Forget what was tried, so that the next `join` goes back to DHCP.

        `failed`: because the join did.
        """
        if self._tried:
            self._tried = False
            if failed:
                self._failures = self._record["failures"] + 1
            self._record = {}
            self._store(b"")

    def keep(self, wlan, name, seconds: int) -> None:
        """Keep what `wlan` knows of the network `name`, for the boots after `seconds` of sleep."""
        old = self._record
        if old and not self._tried:
            return  # its time comes later
        record: dict = {"ssid": name, "seconds": seconds, "failures": self._failures, "from": 0}
        if self._failures:
            record["from"] = self._boot + (1 << min(self._failures, _MOST_FAILURES)) - 1
        try:
            bssid = bytearray(6)
            if hasattr(wlan, "ioctl"):
                wlan.ioctl(_GET_BSSID, bssid)
            record["bssid"] = binascii.hexlify(bytes(bssid)).decode() if any(bssid) else ""
            record["channel"] = wlan.config("channel")
            boots = LEASE_S // (seconds + _AWAKE_S)
            record["last"], record["address"] = 0, None
            if not self.fixed and boots:
                record["last"], record["address"] = self._boot + boots, wlan.ifconfig()
            elif self.fixed and old and old.get("seconds") == seconds:
                # DHCP has not given it again.
                record["last"], record["address"] = old["last"], old["address"]
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


def _connect(wlan, key, bssid, channel):
    if bssid:  # CYW43
        wlan.connect(*key, bssid=binascii.unhexlify(bssid), channel=channel)
        return
    wlan.connect(*key)
    if channel and not hasattr(wlan, "ioctl"):
        # ESP32: a scan begins at the channel that is set. `connect` with a name forgets it.
        wlan.disconnect()
        wlan.config(channel=channel)
        wlan.connect()
