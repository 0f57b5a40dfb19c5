"""The certificate of a bench, for clients on either interpreter."""

from __future__ import annotations

from pathlib import Path

from flatmq_rigs import loopback_certificate
from flatmq_rigs.loopback_certificate import AUTHORITY, CHAIN, KEY  # noqa: F401


def write(folder: Path) -> Path:
    """Write what a broker needs to the folder, and return the folder.

    The module `authority` in it has the authority's certificate, in DER, as CA.
    """
    loopback_certificate.write(folder)
    (folder / "authority.py").write_text(f"CA = {authority(folder)!r}\n")
    return folder


def authority(folder: Path) -> bytes:
    """Return the authority's certificate in DER, of a folder that `write` has filled."""
    return (folder / AUTHORITY).read_bytes()
