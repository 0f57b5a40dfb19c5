"""The key that signs updates, and its public half, which boards hold."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ..errors import ToolError

BITS = 3072
_EXPONENT = 65537
_LEAST = 2048


def generate(file: Path) -> Path:
    """Write a new private key to `file`, and the public one beside it, whose path is returned.

    Only the user may read the private key. Raises ToolError if one of the files is there.
    """
    public = file.with_name(f"{file.name}.pub")
    key = rsa.generate_private_key(_EXPONENT, BITS)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    file.parent.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    try:
        for path, data, mode in ((file, private, 0o600), (public, shown, 0o644)):
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with os.fdopen(number, "wb") as f:
                f.write(data)
    except BaseException as error:
        for each in made:  # half a pair would be taken for a key
            each.unlink()
        if isinstance(error, FileExistsError):
            raise ToolError(f"{path}: is there already, and a key is not replaced") from error
        raise
    return public


def private(file: Path) -> rsa.RSAPrivateKey:
    """The key in a file in PEM. Raises ToolError."""
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ToolError(f"{file}: no private key in PEM without a password") from error
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size < _LEAST:
        raise ToolError(f"{file}: must be an RSA key of {_LEAST} bits or more")
    return key


def modulus(file: Path) -> int:
    """Return the modulus of a public key, in PEM: what a board holds. Raises ToolError."""
    try:
        key = load_pem_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ToolError(f"{file}: no public key in PEM, as of `flatmq ota keygen`") from error
    numbers = key.public_numbers() if isinstance(key, rsa.RSAPublicKey) else None
    if numbers is None or numbers.e != _EXPONENT or numbers.n.bit_length() < _LEAST:
        raise ToolError(
            f"{file}: must be an RSA key of {_LEAST} bits or more with the exponent {_EXPONENT}"
        )
    return numbers.n


def sign(key: rsa.RSAPrivateKey, data: bytes) -> bytes:
    """Return the signature: RSA with PKCS #1 v1.5 and SHA-256."""
    return key.sign(data, padding.PKCS1v15(), SHA256())
