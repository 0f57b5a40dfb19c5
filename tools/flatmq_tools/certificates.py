"""Certificates and keys as a broker's operator hands them out, and what a board can use of them.

A board's Mbed TLS reads DER: one authority, one certificate, one key. Files come as PEM, often
with several certificates in one. What would fail on the board, with fewer words, fails here.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs7 import (
    load_der_pkcs7_certificates,
    load_pem_pkcs7_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from .errors import ToolError

SOON = datetime.timedelta(days=30)
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_RSA = (2048, 4096)  # bits: Mbed TLS refuses fewer, and a board has no memory for more
_KEYS = "RSA of 2048 to 4096 bits, or P-256, P-384 or P-521"
_ENCRYPTED = (b"ENCRYPTED", b"Proc-Type: 4")


_KNOWN = {
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
    ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    x509.ObjectIdentifier("2.16.840.1.113730.1.1"),  # nsCertType
}
"""The extensions that Mbed TLS knows: a certificate with another one that is critical is refused.
"""


@dataclass(frozen=True)
class Loaded:
    """The files to put on a board."""

    der: bytes
    remarks: tuple[str, ...] = ()
    """What the user should know, a line each."""


def common_name(name: x509.Name) -> str:
    """Return the common name of a subject or issuer, or the whole name if it has none."""
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string() or "(no name)"


def key_type(key: object) -> str:
    """A public or private key in words: "P-256", "RSA 2048"."""
    if isinstance(key, (rsa.RSAPublicKey, rsa.RSAPrivateKey)):
        return f"RSA {key.key_size}"
    if isinstance(key, (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey)):
        name = key.curve.name
        return name.replace("secp", "P-").removesuffix("r1") if name in _CURVES else name
    return type(key).__name__.removeprefix("_").replace("PublicKey", "").replace("PrivateKey", "")


def board_takes(key: object) -> bool:
    """Return whether a board's TLS can use a public or private key of this type and size."""
    if isinstance(key, (rsa.RSAPublicKey, rsa.RSAPrivateKey)):
        return _RSA[0] <= key.key_size <= _RSA[1]
    if isinstance(key, (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey)):
        return key.curve.name in _CURVES
    return False


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others.

    A certificate of version 1, which does not say, may if it signed itself.
    """
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return is_root(certificate)
    return found.value.ca


def _usages(certificate: x509.Certificate) -> tuple[x509.KeyUsage | None, set[object] | None]:
    """Return the key usage and the extended key usage, None for each that allows everything."""
    found: list[x509.ExtensionType | None] = []
    for kind in (x509.KeyUsage, x509.ExtendedKeyUsage):
        try:
            found.append(certificate.extensions.get_extension_for_class(kind).value)
        except x509.ExtensionNotFound:
            found.append(None)
    usage, extended = found
    assert usage is None or isinstance(usage, x509.KeyUsage)
    every = set(extended) if isinstance(extended, x509.ExtendedKeyUsage) else None
    return usage, None if every and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in every else every


def may_sign(certificate: x509.Certificate) -> bool:
    """Return whether a board takes the certificate for an authority that may sign others."""
    usage, _ = _usages(certificate)
    return is_authority(certificate) and (usage is None or usage.key_cert_sign)


def may_serve(certificate: x509.Certificate) -> bool:
    """Return whether a board accepts the certificate as that of a broker."""
    usage, extended = _usages(certificate)
    return (usage is None or usage.digital_signature or usage.key_encipherment) and (
        extended is None or ExtendedKeyUsageOID.SERVER_AUTH in extended
    )


def unknown_to_boards(certificate: x509.Certificate) -> list[str]:
    """Return the names of the critical extensions for which boards refuse the certificate."""
    return [
        each.oid.dotted_string
        if isinstance(each.value, x509.UnrecognizedExtension)
        else type(each.value).__name__
        for each in certificate.extensions
        if each.critical and each.oid not in _KNOWN
    ]


def is_root(certificate: x509.Certificate) -> bool:
    """Return whether the certificate signed itself."""
    return signed_by(certificate, certificate)


def signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether `issuer` signed the certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def same_key(one: object, other: object) -> bool:
    """Return whether two public keys are the same."""
    return _spki(one) == _spki(other)


def _spki(key: object) -> bytes:
    return key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )


def day(when: datetime.datetime) -> str:
    """A date as people write it."""
    return f"{when:%Y-%m-%d}"


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Raise ToolError for a certificate of `name` that cannot be read."""
    try:
        yield
    except (
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        UnsupportedAlgorithm,
        ValueError,
    ) as error:
        raise ToolError(f"{name}: has a certificate that cannot be read: {error}") from error


def whole(found: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """Return the certificates, of which the parts that are parsed only with their use are read."""
    found = list(found)
    for each in found:
        each.public_key(), each.extensions
    return found


def read(file: Path, name: str = "") -> list[x509.Certificate]:
    """Return all certificates in a file: PEM with any number of them, DER, or PKCS #7.

    `name` is what an error calls the file. Raises ToolError.
    """
    name = name or str(file)
    data = _bytes(file, name)
    ways: tuple[tuple[bytes, Callable[[bytes], list[x509.Certificate]]], ...] = (
        (b"-----BEGIN CERTIFICATE", x509.load_pem_x509_certificates),
        (b"-----BEGIN PKCS7", load_pem_pkcs7_certificates),
        (b"", lambda der: [x509.load_der_x509_certificate(der)]),
        (b"", load_der_pkcs7_certificates),
    )
    for mark, load in ways:
        found: list[x509.Certificate] = []
        with reading(name):
            if mark in data:
                with contextlib.suppress(ValueError, UnsupportedAlgorithm):
                    found = load(data)
            if found:
                return whole(found)
    raise ToolError(f"{name}: must be a certificate in PEM or DER, not {_looks_like(data)}")


def _bytes(file: Path, name: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ToolError(f"{name}: cannot be read: {error.strerror}") from error


def _looks_like(data: bytes) -> str:
    """Describe a file that holds no certificate."""
    if not data.strip():
        return "an empty file"
    head = data[:512].lstrip()
    if head[:1] == b"<":
        return "a web page"
    for kind in ("private", "public"):
        if b"%s KEY-----" % kind.upper().encode() in data:
            return f"a {kind} key"
    if b"CERTIFICATE REQUEST-----" in data:
        return "a certificate request"
    if head[:1] == b"\x30":
        return "a PKCS #12 container or a key (openssl pkcs12 -in FILE -nodes makes PEM)"
    return "something else"


def authority(file: Path, name: str, now: datetime.datetime) -> Loaded:
    """The one certificate that a board verifies the broker by. Raises ToolError.

    Of several in the file it is the root if there is one root, or else the one that none of the
    others signed.
    """
    found = _without_copies(read(file, name))
    roots = [each for each in found if is_root(each)]
    tops = roots or [
        each
        for each in found
        if not any(other is not each and signed_by(each, other) for other in found)
    ]
    if len(tops) > 1:
        names = ", ".join(sorted(common_name(each.subject) for each in tops)[:4])
        more = f" and {len(tops) - 4} more" if len(tops) > 4 else ""
        raise ToolError(
            f"{name}: holds {len(tops)} authorities ({names}{more}), and a board takes one; "
            f"`flatmq tls HOST --ca {file} --save FILE` picks the broker's"
        )
    chosen = tops[0]
    which = f"{name}: {common_name(chosen.subject)}"
    remarks = []
    if not is_root(chosen):
        if not is_authority(chosen):
            raise ToolError(
                f"{which}: must be an authority, not a certificate that "
                f"{common_name(chosen.issuer)} signed for a broker; `flatmq tls HOST` says which "
                "authority that is"
            )
        remarks.append(
            f"{which} is not a root: boards refuse the broker once it changes to another "
            f"authority of {common_name(chosen.issuer)}"
        )
    if not (may_sign(chosen) if is_authority(chosen) else may_serve(chosen)):
        what = "sign others" if is_authority(chosen) else "be a broker's"
        raise ToolError(f"{which}: must be allowed to {what} (key usage)")
    if len(found) > 1:
        remarks.append(
            f"{which} goes to the board; the other {len(found) - 1} of the file "
            f"{'are' if len(found) > 2 else 'is'} not needed"
        )
    remarks += _check(chosen, which, now)
    return Loaded(chosen.public_bytes(Encoding.DER), tuple(remarks))


def own(
    cert: Path, key: Path, cert_name: str, key_name: str, now: datetime.datetime
) -> tuple[Loaded, Loaded]:
    """A board's own certificate and its key. Raises ToolError.

    Of several certificates in the file it is the one that belongs to the key.
    """
    private = read_key(key, key_name)
    found = _without_copies(read(cert, cert_name))
    mine = [each for each in found if same_key(each.public_key(), private.public_key())]
    if not mine:
        names = ", ".join(common_name(each.subject) for each in found)
        raise ToolError(
            f"{key_name}: must be the key of the certificate in {cert_name} ({names}); it is "
            "the key of another one"
        )
    chosen = mine[0]
    which = f"{cert_name}: {common_name(chosen.subject)}"
    remarks = []
    if len(found) > 1:
        remarks.append(
            f"{which} goes to the board without the other {len(found) - 1} of the file: a board "
            f"sends one certificate, so the broker has to know {common_name(chosen.issuer)}"
        )
        others = [each for each in found if each is not chosen]
        if not is_root(chosen) and not any(signed_by(chosen, each) for each in others):
            raise ToolError(
                f"{which}: was signed by none of the other certificates in the file, but by "
                f"{common_name(chosen.issuer)}: they do not belong together"
            )
    extended = _usages(chosen)[1]
    if extended is not None and ExtendedKeyUsageOID.CLIENT_AUTH not in extended:
        raise ToolError(
            f"{which}: must be a certificate for clients (extended key usage clientAuth), not one "
            "for servers"
        )
    remarks += _check(chosen, which, now)
    der = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return Loaded(chosen.public_bytes(Encoding.DER), tuple(remarks)), Loaded(der)


def read_key(file: Path, name: str) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    """The private key of a file, PEM or DER. ToolError, whose text has nothing of it."""
    data = _bytes(file, name)
    if any(mark in data for mark in _ENCRYPTED):
        raise ToolError(
            f"{name}: must not be encrypted, as a board has nobody to ask for the password; "
            f"`openssl pkey -in {file} -out FILE` decrypts it"
        )
    try:
        if b"PRIVATE KEY-----" in data:
            key = load_pem_private_key(data, None)
        elif b"-----BEGIN" in data:
            raise ToolError(f"{name}: must be a private key, not a certificate")
        else:
            key = load_der_private_key(data, None)
    except TypeError as error:  # encrypted, in DER
        raise ToolError(
            f"{name}: must not be encrypted, as a board has nobody to ask for the password"
        ) from error
    except (ValueError, UnsupportedAlgorithm):
        # The error of the library is not chained: it might quote what it could not read.
        raise ToolError(f"{name}: must be a private key in PEM or DER") from None
    if not isinstance(key, (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey)) or not board_takes(
        key
    ):
        raise ToolError(f"{name}: must be {_KEYS} for a board, not {key_type(key)}")
    return key


def _without_copies(found: list[x509.Certificate]) -> list[x509.Certificate]:
    return list(dict.fromkeys(found))


def _check(certificate: x509.Certificate, name: str, now: datetime.datetime) -> list[str]:
    """Check what a certificate of either kind needs; returns remarks. Raises ToolError."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends < now:
        raise ToolError(f"{name}: has expired, on {day(ends)}")
    if begins > now:
        raise ToolError(f"{name}: is not valid before {day(begins)}, and today is {day(now)}")
    for unknown in unknown_to_boards(certificate):
        raise ToolError(
            f"{name}: has the critical extension {unknown}, which boards do not support"
        )
    key = certificate.public_key()
    if not board_takes(key):
        raise ToolError(f"{name}: must have a key of {_KEYS}, not {key_type(key)}")
    return [f"{name} expires soon, on {day(ends)}"] if ends - now < SOON else []


def now() -> datetime.datetime:
    """The time of this machine."""
    return datetime.datetime.now(datetime.timezone.utc)
