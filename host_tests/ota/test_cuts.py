"""Whenever the power is cut during an update, the board runs the old version or the new one, and
comes to the new one.

A slice of the writes is cut, and with --whole each write.
"""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

import sizes
from conftest import ROOT, library, printed
from flatmq_tools.ota import package, push

HERE = Path(__file__).parent
SLICES = 15
CASES = [(kind, first) for kind in ("application", "0", "1") for first in range(1, SLICES + 1)]


@pytest.mark.parametrize(("kind", "first"), sizes.one_each(CASES, lambda case: case[0]))
def test_a_cut(kind: str, first: int, key: RSAPrivateKey, tmp_path: Path) -> None:
    """Of an application, or of firmware, whose boot loader can roll back (1) or not (0)."""
    is_firmware = kind != "application"
    scale = 30 if is_firmware else 1
    old, new = (
        package.archive(
            {"main.mpy": bytes([n]) * 3000, "more/x.mpy": bytes(range(256)) * n * scale}
        )
        for n in (1, 9)
    )
    made = package.Package("toy", "2", 2, "firmware" if is_firmware else kind, new)
    manifest = push.manifest(made, "dev/b", key)
    modulus = key.public_key().public_numbers().n
    files = {"key": b"%x" % modulus, "manifest": manifest, "old": old, "new": new}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    path = [HERE, HERE.parent / "spool", ROOT / "boards" / "shared", library("micropython")]
    words = [*(tmp_path / name for name in files), first, SLICES, *[kind][: int(is_firmware)]]
    seen = printed("micropython", "2m", HERE / "cuts.py", *words, folders=path, timeout=300)
    writes, cuts, before, after = map(int, seen.splitlines()[-1].split())
    assert cuts == 2 * len(range(first, writes, SLICES)) + 2
    assert before + after == cuts
    assert before
    assert after
