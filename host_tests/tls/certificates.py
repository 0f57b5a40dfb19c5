"""Certificates for the tests, made with the library cryptography: P-256, DER and PEM."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_DER = serialization.Encoding.DER
_PEM = serialization.Encoding.PEM


class Holder(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pin(self) -> str:
        """The SHA-256 of the public key in base64, by another way than that of the client."""
        spki = self.key.public_key().public_bytes(
            _DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(hashlib.sha256(spki).digest()).decode()

    def write(self, folder: Path, name: str) -> None:
        """Write NAME.der, NAME.pem, NAME.key.der and NAME.key.pem."""
        for encoding, suffix in ((_DER, "der"), (_PEM, "pem")):
            (folder / f"{name}.{suffix}").write_bytes(self.certificate.public_bytes(encoding))
            # As `openssl ecparam -genkey` has it (SEC 1).
            (folder / f"{name}.key.{suffix}").write_bytes(
                self.key.private_bytes(
                    encoding,
                    serialization.PrivateFormat.TraditionalOpenSSL,
                    serialization.NoEncryption(),
                )
            )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def made(
    name: str,
    issuer: Holder | None = None,
    *,
    days: tuple[int, int] = (-1, 30),
    alternative: list[x509.GeneralName] | None = None,
) -> Holder:
    """Make a certificate that is valid for `days` from today, signed by `issuer`, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(issuer.certificate.subject if issuer else _named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * _DAY)
        .not_valid_after(now + days[1] * _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    signed = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    return Holder(signed, key)


def write(folder: Path) -> dict[str, str]:
    """Write all certificates into a folder; return the pin of each."""
    here: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    ca = made("flatmq test authority")
    other = made("another authority")
    holders = {
        "ca": ca,
        "other": other,
        "broker": made("localhost", ca, alternative=here),
        "expired": made("localhost", ca, days=(-30, -1), alternative=here),
        "future": made("localhost", ca, days=(10, 30), alternative=here),
        "own": made("localhost", alternative=here),
        "named": made("broker.example", ca, alternative=[x509.DNSName("broker.example")]),
        "client": made("board", ca),
        "stranger": made("board", other),
    }
    for name, holder in holders.items():
        holder.write(folder, name)
    (folder / "broken.der").write_bytes(b"no certificate")
    return {name: holder.pin for name, holder in holders.items()}
