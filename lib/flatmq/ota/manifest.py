"""Read the manifest of an update. Loaded with the first one."""

from ..port import const
from ..signed import signed

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

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
KINDS = ("application", "firmware")


def read(text: bytes, key: int) -> "dict[str, Any]":
    """Return what a manifest says. ValueError if it is not signed, or is none."""
    said = signed(text, key)
    if type(said) is not dict:
        raise ValueError("manifest: must be an object")
    for name, kind in _KEYS:
        if type(said.get(name)) is not kind:
            raise ValueError("manifest: " + name + " must be " + kind.__name__)
    if said["kind"] not in KINDS:
        raise ValueError("kind: must be application or firmware, not " + said["kind"])
    if not (0 < said["size"] < 1 << 24 and 256 <= said["piece"] <= 4096):
        raise ValueError("manifest: size or piece is out of range")
    if len(said["sha256"]) != 64:
        raise ValueError("manifest: sha256 must have 64 hex digits")
    return said
