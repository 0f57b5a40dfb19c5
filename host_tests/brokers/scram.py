"""The server's side of SCRAM-SHA-256 (RFC 5802 and 7677), without channel binding."""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping

METHOD = b"SCRAM-SHA-256"
ITERATIONS = 4096


class ScramError(Exception):
    """The other side did not prove itself, or its message is not one of SCRAM."""


def _field(message: bytes, name: bytes) -> bytes:
    for part in message.split(b","):
        if part.startswith(name + b"="):
            return part[2:]
    raise ScramError(f"{message!r} lacks {name!r}")


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _proof(password: bytes, salt: bytes, auth: bytes) -> tuple[bytes, bytes]:
    """ClientProof and ServerSignature."""
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, ITERATIONS)
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
    ) -> None:
        self.user = b""
        self._passwords = passwords
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._nonce = secrets.token_hex(12).encode() if nonce is None else nonce
        self._bare = self._answer = b""

    def first(self, message: bytes) -> bytes:
        """The answer to the client's first message."""
        if message[:3] not in (b"n,,", b"y,,"):
            raise ScramError(f"channel binding is not offered: {message!r}")
        self._bare = message[3:]
        name = _field(self._bare, b"n")
        self.user = name.replace(b"=2C", b",").replace(b"=3D", b"=")
        self._nonce = _field(self._bare, b"r") + self._nonce
        self._answer = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(self._salt), ITERATIONS)
        return self._answer

    def final(self, message: bytes) -> bytes:
        """The answer to the client's final message.

        Raises ScramError unless it proves the password.
        """
        without, _comma, proof = message.rpartition(b",p=")
        if _field(without, b"c") not in (b"biws", b"eSws") or _field(without, b"r") != self._nonce:
            raise ScramError("another nonce or channel binding")
        auth = b",".join((self._bare, self._answer, without))
        password = self._passwords.get(self.user, b"")
        wanted, signature = _proof(password, self._salt, auth)
        try:
            given = b64decode(proof, validate=True)
        except ValueError:
            raise ScramError("a proof that is not base64") from None
        if not hmac.compare_digest(given, wanted) or self.user not in self._passwords:
            raise ScramError("wrong user name or password")
        return b"v=" + b64encode(signature)
