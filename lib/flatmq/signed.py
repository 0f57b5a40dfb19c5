"""Texts that are signed: a JSON document, a newline, and in base64 its signature.

That is by RSA with PKCS #1 v1.5 and SHA-256 (RFC 8017 section 8.2.2).
"""

import binascii
import hashlib
import json

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_EXPONENT = const(65537)
# DigestInfo of SHA-256, RFC 8017 section 9.2, note 1
_INFO = const(b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20")


def is_signed(data: bytes, signature: bytes, key: int) -> bool:
    """Return whether the signature of `data` is by the key with the modulus `key`."""
    size = (len(f"{key:x}") + 1) // 2
    if len(signature) != size:
        return False
    end = b"\0" + _INFO + hashlib.sha256(data).digest()
    wanted = b"\0\1" + b"\xff" * (size - 2 - len(end)) + end
    found = pow(int.from_bytes(signature, "big"), _EXPONENT, key)
    return found == int.from_bytes(wanted, "big")


def signed(text: bytes, key: int) -> "Any":
    """Return the JSON of a text that ends in its signature. ValueError if it is not signed."""
    end = text.rfind(b"\n")
    try:
        signature = binascii.a2b_base64(text[end + 1 :])
    except ValueError:
        signature = b""
    if end < 0 or not is_signed(text[:end], signature, key):
        raise ValueError("signature: it is not by the key of this board")
    return json.loads(text[:end])
