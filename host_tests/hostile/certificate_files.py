"""The certificates for TLS on loopback, as files that both interpreters read."""

from __future__ import annotations

import atexit
import base64
import functools
import shutil
import tempfile
from pathlib import Path

from flatmq_rigs import loopback_certificate


@functools.cache
def folder() -> Path:
    """Return a folder with them, which is made once and removed at the end of the process."""
    made = Path(tempfile.mkdtemp(prefix="flatmq-hostile-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    loopback_certificate.write(made)
    for name in (loopback_certificate.CHAIN, loopback_certificate.KEY):
        _, _, text, *_ = (made / name).read_text().split("-----")
        der = base64.b64decode("".join(text.split()))
        (made / name).with_suffix(".der").write_bytes(der)
    return made
