"""SCRAM-SHA-256 (RFC 5802 and 7677), both sides, without channel binding."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping

METHOD = b"SCRAM-SHA-256"
ITERATIONS = 4096


class ScramError(Exception):
    """The other side did not prove itself, or its message is not one of SCRAM."""


def _fields(message: bytes) -> dict[bytes, bytes]:
    parts = [part.partition(b"=") for part in message.split(b",")]
    if any(not equals or len(name) != 1 for name, equals, _value in parts):
        raise ScramError(f"not a message of SCRAM: {message!r}")
    return {name: value for name, _equals, value in parts}


def _field(message: bytes, name: bytes) -> bytes:
    try:
        return _fields(message)[name]
    except KeyError:
        raise ScramError(f"{message!r} lacks {name!r}") from None


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _salted(password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password, salt, iterations)


def _proof(salted: bytes, auth: bytes) -> tuple[bytes, bytes]:
    """ClientProof and ServerSignature."""
    client_key = _mac(salted, b"Client Key")
    signature = _mac(hashlib.sha256(client_key).digest(), auth)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return proof, _mac(_mac(salted, b"Server Key"), auth)


class ScramServer:
    """One exchange. `user` is known after `first`."""

    def __init__(
        self,
        passwords: Mapping[bytes, bytes],
        *,
        salt: bytes | None = None,
        nonce: bytes | None = None,
        iterations: int = ITERATIONS,
    ) -> None:
        self.user = b""
        self._passwords = passwords
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._nonce = secrets.token_hex(12).encode() if nonce is None else nonce
        self._iterations = iterations
        self._bare = self._answer = b""

    def first(self, message: bytes) -> bytes:
        """The answer to the client's first message."""
        if message[:3] not in (b"n,,", b"y,,"):
            raise ScramError(f"channel binding is not offered: {message!r}")
        self._bare = message[3:]
        name = _field(self._bare, b"n")
        self.user = name.replace(b"=2C", b",").replace(b"=3D", b"=")
        self._nonce = _field(self._bare, b"r") + self._nonce
        self._answer = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(self._salt), self._iterations)
        return self._answer

    def final(self, message: bytes) -> bytes:
        """The answer to the client's final message.

        Raises ScramError unless it proves the password.
        """
        without, _comma, proof = message.rpartition(b",p=")
        if _field(without, b"c") not in (b"biws", b"eSws") or _field(without, b"r") != self._nonce:
            raise ScramError("another nonce or channel binding")
        auth = b",".join((self._bare, self._answer, without))
        salted = _salted(self._passwords.get(self.user, b""), self._salt, self._iterations)
        wanted, signature = _proof(salted, auth)
        known = self.user in self._passwords
        try:
            given = b64decode(proof, validate=True)
        except ValueError:
            raise ScramError("a proof that is not base64") from None
        if not hmac.compare_digest(given, wanted) or not known:
            raise ScramError("wrong user name or password")
        return b"v=" + b64encode(signature)


class ScramClient:
    """One exchange."""

    def __init__(self, user: bytes, password: bytes, *, nonce: bytes | None = None) -> None:
        self._password = password
        self._nonce = secrets.token_hex(12).encode() if nonce is None else nonce
        name = user.replace(b"=", b"=3D").replace(b",", b"=2C")
        self._bare = b"n=%b,r=%b" % (name, self._nonce)
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return b"n,," + self._bare

    def final(self, answer: bytes) -> bytes:
        """The final message, to the server's first."""
        nonce, salt = _field(answer, b"r"), b64decode(_field(answer, b"s"))
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not begin with ours")
        without = b"c=biws,r=" + nonce
        salted = _salted(self._password, salt, int(_field(answer, b"i")))
        proof, self._signature = _proof(salted, b",".join((self._bare, answer, without)))
        return without + b",p=" + b64encode(proof)

    def verify(self, message: bytes) -> None:
        """Check the server's final message."""
        if b64decode(_field(message, b"v")) != self._signature:
            raise ScramError("the server does not know the password")
