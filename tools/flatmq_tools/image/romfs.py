"""The ROMFS image, by mpremote: modules that run where they lie in flash."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


class RomfsError(RuntimeError):
    """mpremote did not do it, or the image does not fit; the text says which."""


def build(files: dict[str, bytes]) -> bytes:
    """files: absolute path -> bytes; on the board they are below /rom."""
    with tempfile.TemporaryDirectory(prefix="flatmq-romfs-") as name:
        root = Path(name) / "rom"
        for path, data in files.items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        output = Path(name) / "image.romfs"
        process = subprocess.run(
            [
                *(sys.executable, "-m", "mpremote", "romfs", "--no-mpy"),
                *("--output", str(output), "build", str(root)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode or not output.is_file():
            raise RomfsError(f"mpremote romfs build failed: {process.stdout}{process.stderr}")
        return output.read_bytes()
