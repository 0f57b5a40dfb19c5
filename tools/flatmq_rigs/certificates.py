"""Certificates of every kind that rigs and tests need, made on the spot."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HERE = ("localhost", "127.0.0.1")
# The files of `write_loopback`.
CHAIN = "broker.pem"
KEY = "broker.key.pem"
AUTHORITY = "authority.der"
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def new_key(kind: str = "P-256") -> Any:
    """A private key: "P-256", "P-224", "Ed25519" or "RSA 2048"."""
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    family, size = kind.replace("-", " ").split()
    if family == "RSA":
        return rsa.generate_private_key(65537, int(size))
    return ec.generate_private_key({"256": ec.SECP256R1(), "224": ec.SECP224R1()}[size])


class Issued:
    """A certificate and its key. Without an `issuer` it signs itself.

    days: from which to which day it is valid, counted from now. more: extensions, and whether each
    is critical.
    """

    def __init__(
        self,
        name: str,
        issuer: Issued | None = None,
        *,
        authority: bool = False,
        hosts: Iterable[str] = (),
        usage: Any = None,
        days: tuple[int, int] = (-10, 365),
        kind: str = "P-256",
        key: Any = None,
        path_length: int | None = None,
        more: Iterable[tuple[x509.ExtensionType, bool]] = (),
    ) -> None:
        self.name = name
        self.key = key or new_key(kind)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.certificate.subject if issuer else subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days[0]))
            .not_valid_after(now + datetime.timedelta(days[1]))
            .add_extension(x509.BasicConstraints(authority, path_length), critical=True)
        )
        names = [_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        for extension, critical in more:
            builder = builder.add_extension(extension, critical)
        signer = issuer.key if issuer else self.key
        algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        self.certificate: x509.Certificate = builder.sign(signer, algorithm)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pin(self) -> str:
        """The SHA-256 of the public key in Base64, by another way than that of the client."""
        spki = self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(spki).digest()).decode()

    def key_bytes(
        self,
        encoding: Encoding = Encoding.PEM,
        form: PrivateFormat = PrivateFormat.PKCS8,
        password: bytes | None = None,
    ) -> bytes:
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        return bytes(self.key.private_bytes(encoding, form, encryption))

    def write(self, folder: Path, stem: str) -> tuple[Path, Path]:
        """Write STEM.pem and STEM.key.pem, which are returned, and both with .der for boards.

        The keys are as `openssl ecparam -genkey` has them (SEC 1).
        """
        folder.mkdir(exist_ok=True)
        for encoding, suffix in ((Encoding.DER, "der"), (Encoding.PEM, "pem")):
            (folder / f"{stem}.{suffix}").write_bytes(self.certificate.public_bytes(encoding))
            key = self.key_bytes(encoding, PrivateFormat.TraditionalOpenSSL)
            (folder / f"{stem}.key.{suffix}").write_bytes(key)
        return folder / f"{stem}.pem", folder / f"{stem}.key.pem"


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_loopback(folder: Path) -> Path:
    """Write an authority and the certificate of a broker on loopback; return the folder.

    The module `authority` in it has the authority's certificate, in DER, as CA.
    """
    authority = Issued("An authority", authority=True)
    authority.write(folder, Path(AUTHORITY).stem)
    Issued("A broker", authority, hosts=HERE).write(folder, Path(CHAIN).stem)
    (folder / "authority.py").write_text(f"CA = {authority.der!r}\n")
    return folder
