"""An authority and a broker's certificate, made for one run: P-256, for 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

CHAIN = "broker.pem"
KEY = "broker.key.pem"
_AUTHORITY = "authority.der"
_DAY = datetime.timedelta(days=1)


def _unsigned(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(name == issuer, None), critical=True)
    )


def write(folder: Path) -> Path:
    """Write what a broker needs into the folder, and the module `authority` with the authority's
    certificate in DER as CA, for clients on either interpreter. Return the folder."""
    root = "flatmq bench authority"
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _unsigned(root, root, authority).sign(authority, hashes.SHA256())
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    broker = (
        _unsigned("localhost", root, key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(authority, hashes.SHA256())
    )
    (folder / CHAIN).write_bytes(broker.public_bytes(Encoding.PEM))
    (folder / KEY).write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    der = ca.public_bytes(Encoding.DER)
    (folder / _AUTHORITY).write_bytes(der)
    (folder / "authority.py").write_text(f"CA = {der!r}\n")
    return folder


def authority(folder: Path) -> bytes:
    """Return the authority's certificate in DER, of a folder that `write` has filled."""
    return (folder / _AUTHORITY).read_bytes()
