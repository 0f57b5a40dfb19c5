"""By which certificates is a broker verified, and which is shown to it?"""

from __future__ import annotations

import ssl
from pathlib import Path


class TrustError(ValueError):
    """The certificates cannot be used; the text says why."""


def context(
    tls: bool, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext | None:
    """TLS that verifies the broker, by this machine's authorities or by those in `ca`, and shows
    a certificate where one is given; None where neither `tls` nor a file is. TrustError."""
    if not (tls or ca or cert or key):
        return None
    if key and not cert:
        raise TrustError("--key needs its certificate in --cert")
    file = ca
    try:
        made = ssl.create_default_context(cafile=str(ca) if ca else None)
        if cert:
            file = cert
            made.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:  # which names no file
        raise TrustError(f"{file}: the certificates cannot be used: {error}") from error
    return made
