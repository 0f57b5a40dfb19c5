"""Pins: the SHA-256 of the public key in a certificate (RFC 7469, section 2.4)."""

import binascii
import hashlib

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_SIZE = const(32)  # bytes of a SHA-256
_VERSION = const(0xA0)  # the tag of the optional first field of TBSCertificate
_BEFORE_KEY = const(5)  # fields: serialNumber, signature, issuer, validity, subject


def digests(pin: "Any") -> "tuple[bytes, ...]":
    """Return the argument `pin` as a tuple of digests. ValueError or TypeError for a bad one."""
    found = []
    for each in pin if isinstance(pin, (tuple, list)) else (pin,):
        if not isinstance(each, (str, bytes, bytearray)):
            raise TypeError(f"pin must be bytes, str or a tuple of them, not {each!r}")
        try:
            digest = binascii.a2b_base64(each) if isinstance(each, str) else bytes(each)
        except ValueError:
            digest = b""
        if len(digest) != _SIZE:
            raise ValueError(f"pin must be a SHA-256, 32 bytes or base64 of them, not {each!r}")
        found.append(digest)
    return tuple(found)


def inside(der, at):
    """Return where the contents of the element at `at` begin."""
    n = der[at + 1]
    return at + 2 + (n & 127 if n > 127 else 0)


def after(der, at):
    """Return where the element at `at` ends."""
    size = der[at + 1]
    begin = inside(der, at)
    if size > 127:
        size = 0
        for i in range(at + 2, begin):
            size = size << 8 | der[i]
    return begin + size


def key_at(der: "Any") -> int:
    """Return where the SubjectPublicKeyInfo of an X.509 certificate in DER begins."""
    at = inside(der, inside(der, 0))
    if der[at] == _VERSION:
        at = after(der, at)
    for _ in range(_BEFORE_KEY):
        at = after(der, at)
    return at


def digest_of(der: "Any") -> bytes:
    """Return the SHA-256 of the SubjectPublicKeyInfo of an X.509 certificate in DER.

    IndexError or ValueError if it is not one.
    """
    at = key_at(der)
    end = after(der, at)
    if end > len(der):
        raise ValueError("the certificate is incomplete")
    return hashlib.sha256(der[at:end]).digest()


def text(digest: bytes) -> str:
    """Return a digest in base64, as accepted by `pin`."""
    return binascii.b2a_base64(digest).decode().strip()
