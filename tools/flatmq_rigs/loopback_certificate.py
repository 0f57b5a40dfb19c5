"""An authority and the certificate of a broker on loopback, made for one run: P-256."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme

CHAIN = "broker.pem"
KEY = "broker.key.pem"
AUTHORITY = "authority.der"


def write(folder: Path) -> Path:
    """Write a certificate for 127.0.0.1 and localhost to the folder; return the folder.

    It gets the broker's certificate, its key, and the authority's certificate in DER, as
    boards read it.
    """
    authority = trustme.CA()
    broker = authority.issue_cert("localhost", "127.0.0.1")
    broker.cert_chain_pems[0].write_to_path(folder / CHAIN)
    broker.private_key_pem.write_to_path(folder / KEY)
    (folder / AUTHORITY).write_bytes(ssl.PEM_cert_to_DER_cert(authority.cert_pem.bytes().decode()))
    return folder
