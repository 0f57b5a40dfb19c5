"""The IP addresses that a certificate lists. Loaded if `ca` verifies a host that is an address.

Mbed TLS also accepts an address that is only the common name or a DNS name of a certificate, or
that matches a DNS name with a wildcard.
"""

from .port import const
from .stream_tls_pin import after, inside, key_at

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_EXTENSIONS = const(0xA3)  # the tag of the last field of TBSCertificate
_BOOLEAN = const(1)
_ADDRESS = const(0x87)  # iPAddress in GeneralName (RFC 5280, section 4.2.1.6)
_ALTERNATIVE_NAME = const(b"\x06\x03\x55\x1d\x11")  # the OID of subjectAltName


def packed(name: str) -> bytes:
    """Return an IP address as a certificate has it. ValueError if it is not one."""
    if ":" not in name:
        return bytes([int(part) for part in name.split(".")])
    groups = name.split(":")
    if "" in groups:  # "::" stands for as many zeros as are missing
        at = groups.index("")
        rest = [part for part in groups[at:] if part]
        groups = groups[:at] + ["0"] * (8 - at - len(rest)) + rest
    found = bytearray()
    for part in groups:
        found.append(int(part, 16) >> 8)
        found.append(int(part, 16) & 255)
    return bytes(found)


def expected(name: str) -> "Any":
    """Return, for a host that is an address, what stands in for a pin and its `digest_of`.

    That function returns the address if the certificate lists it, else no bytes.
    """
    try:
        address = packed(name)
    except ValueError:
        address = b"0"  # which no certificate lists

    def listed(der):
        return address if lists(der, address) else b""

    return listed, (address,)


def lists(der: "Any", address: bytes) -> bool:
    """Return whether an X.509 certificate in DER lists an address.

    This allocates nothing: what is allocated in a handshake may be in the place of a buffer later.
    """
    end = after(der, inside(der, 0))
    at = after(der, key_at(der))
    while at < end and der[at] != _EXTENSIONS:
        at = after(der, at)
    if at < end:
        at = inside(der, inside(der, at))
        while at < end:
            if _same(der, inside(der, at), _ALTERNATIVE_NAME) and _among(der, at, address):
                return True
            at = after(der, at)
    return False


def _among(der, at, address):
    """Return whether the extension subjectAltName at `at` has an address."""
    end = after(der, at)
    at = after(der, inside(der, at))
    if der[at] == _BOOLEAN:
        at = after(der, at)
    at = inside(der, inside(der, at))
    while at < end:
        if (
            der[at] == _ADDRESS
            and der[at + 1] == len(address)
            and _same(der, inside(der, at), address)
        ):
            return True
        at = after(der, at)
    return False


def _same(der, at, what):
    """Return whether the bytes at `at` begin with `what`."""
    i = 0
    while i < len(what):
        if der[at + i] != what[i]:
            return False
        i += 1
    return True
