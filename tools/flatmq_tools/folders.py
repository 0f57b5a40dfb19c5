"""The folders of the boards' files and sketches, in a checkout or an installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def find(name: str) -> Path:
    """The folder `name` of the repository: "firmware" or "boards"."""
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _PACKAGE.parents[1] / name
