"""SAS tokens: passwords for Azure IoT Hub that expire.

    sas = SAS("hub.azure-devices.net/devices/pico-1", "base64 of the device's key")
    client = Client(b"pico-1", "hub.azure-devices.net", user=..., password=sas, tls=...)

The client calls it for each CONNECT, so that each connection has its own token.
"""

import binascii
import hashlib
import time

from . import MQTTError
from .port import const

_YEAR = const(2026)  # a clock that shows an earlier year has not been set
_MOST = const(525600)  # minutes in a year
_BLOCK = const(64)  # bytes in a block of SHA-256
_PLAIN = const(b"-._~")  # not encoded in a URL, like letters and digits (RFC 3986 section 2.3)


class SAS:
    """A password function: each call returns a new token (str), valid from now on.

    resource_uri   the resource, not URL-encoded; for a device "HUB/devices/DEVICE", where HUB is
                   the host name
    key            key of the device or of the policy, in base64: str or bytes
    policy         name of the shared access policy that `key` belongs to; None for a device's key
    minutes        lifetime of a token, 1 to 525,600. When it expires, the hub closes the
                   connection, and the client connects again with a new one

    The clock must be set: if it shows a year before 2026, a call raises MQTTError of kind
    "resource", which becomes `client.error`. ValueError and TypeError name the argument that broke
    its rule; they do not show the key.
    """

    def __init__(
        self,
        resource_uri: str,
        key: "str | bytes",
        policy: "str | None" = None,
        minutes: int = 60,
    ) -> None:
        if not isinstance(resource_uri, str) or not resource_uri:
            raise TypeError(f"resource_uri must be str and not empty, not {resource_uri!r}")
        if policy is not None and (not isinstance(policy, str) or not policy):
            raise TypeError(f"policy must be None or str and not empty, not {policy!r}")
        if not isinstance(minutes, int) or not 1 <= minutes <= _MOST:
            raise ValueError(f"minutes must be 1 to 525600, not {minutes!r}")
        self._uri = _quoted(resource_uri)
        self._tail = "&skn=" + _quoted(policy) if policy else ""
        self._key = _decoded(key)
        self._seconds = minutes * 60

    def __call__(self) -> str:
        """Return a token. MQTTError if the clock has not been set."""
        now = time.gmtime()
        if now[0] < _YEAR:
            # The client calls this just before the TLS handshake, and would report any other
            # exception as a fault of that.
            raise MQTTError(
                "resource",
                f"no SAS token, because this clock shows {now[0]}-{now[1]:02d}-{now[2]:02d}: set "
                "it first, with ntptime.settime() for example",
            )
        expiry = str(_unix_time(now) + self._seconds)
        digest = hmac_sha256(self._key, f"{self._uri}\n{expiry}".encode())
        signature = _quoted(binascii.b2a_base64(digest)[:-1].decode())
        return f"SharedAccessSignature sr={self._uri}&sig={signature}&se={expiry}{self._tail}"


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return the HMAC (RFC 2104) of `message` with SHA-256."""
    if len(key) > _BLOCK:
        key = hashlib.sha256(key).digest()
    key = key + bytes(_BLOCK - len(key))
    inner = hashlib.sha256(bytes([b ^ 0x36 for b in key]))
    inner.update(message)
    outer = hashlib.sha256(bytes([b ^ 0x5C for b in key]))
    outer.update(inner.digest())
    return outer.digest()


def _decoded(key):
    """Return the bytes of a key. The errors do not show the key, which is secret."""
    if not isinstance(key, (str, bytes)):
        raise TypeError("key must be str or bytes")
    try:
        found = binascii.a2b_base64(key.encode() if isinstance(key, str) else key)
    except ValueError:
        found = b""
    if not found:
        raise ValueError("key must be base64, as the portal shows it")
    return found


def _quoted(text):
    """Return a text with everything but letters, digits and `_PLAIN` URL-encoded."""
    parts = []
    for c in text.encode():
        if 48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or c in _PLAIN:
            parts.append(chr(c))
        else:
            parts.append(f"%{c:02X}")
    return "".join(parts)


def _unix_time(utc):
    """Return the seconds since 1970. On some boards `time.time()` counts from 2000."""
    year, month = utc[0], utc[1]
    if month < 3:  # the year begins in March, so that the leap day is its last
        year -= 1
        month += 12
    days = 365 * year + year // 4 - year // 100 + year // 400
    days += (153 * month - 457) // 5 + utc[2] - 719469
    return ((days * 24 + utc[3]) * 60 + utc[4]) * 60 + utc[5]
