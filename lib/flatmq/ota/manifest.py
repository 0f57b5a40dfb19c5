"""Read the manifest of an update, and check its signature.

It is a JSON object, a newline, and in base64 the signature of the object by RSA with PKCS #1
v1.5 and SHA-256 (RFC 8017 section 8.2.2).
"""

import binascii
import hashlib
import json

from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_EXPONENT = const(65537)
# DigestInfo of SHA-256, RFC 8017 section 9.2, note 1
_INFO = b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
_KEYS = (
    ("counter", int),
    ("version", str),
    ("kind", str),
    ("board", str),
    ("to", str),
    ("size", int),
    ("piece", int),
    ("sha256", str),
)
KINDS = ("application",)


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


def read(text: bytes, key: int) -> "dict[str, Any]":
    """Return what a manifest says. ValueError if it is not signed, or is none."""
    said = signed(text, key)
    if type(said) is not dict:
        raise ValueError("manifest: must be an object")
    for name, kind in _KEYS:
        if type(said.get(name)) is not kind:
            raise ValueError("manifest: " + name + " must be " + kind.__name__)
    if said["kind"] not in KINDS:
        raise ValueError("kind: must be application, not " + said["kind"])
    if not (0 < said["size"] < 1 << 24 and 256 <= said["piece"] <= 4096):
        raise ValueError("manifest: size or piece is out of range")
    if len(said["sha256"]) != 64:
        raise ValueError("manifest: sha256 must have 64 hex digits")
    return said
