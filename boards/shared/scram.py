"""SCRAM-SHA-256 (RFC 5802 and 7677) for MQTT 5: the password itself never leaves the board.

    client = Client(b"pico-1", "broker.local", version=5,
                    auth=("SCRAM-SHA-256", Scram("user", "password")))

Both sides prove that they know the password. A broker that does not know it is refused.
"""

import binascii
import hashlib
import os

from flatmq import MQTTError
from flatmq.sas import hmac_sha256

_BLOCK = 64  # bytes in a block of SHA-256
_LEAST = 4096  # iterations; fewer would make it cheaper to guess the password
_MOST = 100000  # iterations; more would keep a board busy for minutes


class Scram:
    """The function for `auth` of a client, called with None, then with the broker's messages.

    user, password   str or bytes, printable ASCII
    salted           the attribute `salted` of an earlier object. The board then need not compute
                     it again, which takes seconds, unless the broker has changed the salt

    MQTTError of kind "refused" if the broker does not prove that it knows the password.
    """

    def __init__(self, user, password, salted=None):
        user = user.encode() if isinstance(user, str) else user
        self._user = user.replace(b"=", b"=3D").replace(b",", b"=2C")
        self._password = password.encode() if isinstance(password, str) else password
        self.salted = salted  # (salt, iterations, the password salted with them)
        self._nonce = self._bare = self._signature = b""

    def __call__(self, data):
        """Return the answer to a message from the broker; for None, the first message."""
        if data is None:
            self._nonce = binascii.b2a_base64(os.urandom(18)).strip()
            self._signature = b""
            self._bare = b"n=" + self._user + b",r=" + self._nonce
            return b"n,," + self._bare
        fields = {}
        for part in data.split(b","):
            fields[part[:1]] = part[2:]
        if b"v" in fields:
            return self._verify(fields[b"v"])
        return self._prove(data, fields)

    def _prove(self, data, fields):
        """Return the final message, which proves that this side knows the password."""
        try:
            nonce = fields[b"r"]
            salt = binascii.a2b_base64(fields[b"s"])
            iterations = int(fields[b"i"])
        except (KeyError, ValueError):
            raise MQTTError("refused", "SCRAM: the broker's message is malformed") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise MQTTError("refused", "SCRAM: the broker answered another message")
        if not _LEAST <= iterations <= _MOST:
            raise MQTTError(
                "refused", f"SCRAM: iterations must be {_LEAST} to {_MOST}, not {iterations}"
            )
        if not self.salted or self.salted[:2] != (salt, iterations):
            self.salted = (salt, iterations, pbkdf2(self._password, salt, iterations))
        key = self.salted[2]
        without = b"c=biws,r=" + nonce
        auth = self._bare + b"," + data + b"," + without
        client_key = hmac_sha256(key, b"Client Key")
        signature = hmac_sha256(hashlib.sha256(client_key).digest(), auth)
        proof = bytes([a ^ b for a, b in zip(client_key, signature)])  # noqa: B905 (not on a board)
        self._signature = hmac_sha256(hmac_sha256(key, b"Server Key"), auth)
        return without + b",p=" + binascii.b2a_base64(proof).strip()

    def _verify(self, signature):
        try:
            known = binascii.a2b_base64(signature) == self._signature != b""
        except ValueError:
            known = False
        self._signature = b""
        if not known:
            raise MQTTError("refused", "SCRAM: the broker does not know the password")
        return b""


def pbkdf2(password, salt, iterations):
    """Return PBKDF2 (RFC 8018) of a password, with HMAC-SHA-256 and a result of 32 bytes."""
    sha256 = hashlib.sha256
    key = password if len(password) <= _BLOCK else sha256(password).digest()
    key = key + bytes(_BLOCK - len(key))
    # The data to hash goes right behind the key, so that the loop joins nothing.
    inner = bytearray([b ^ 0x36 for b in key]) + bytes(32)
    outer = bytearray([b ^ 0x5C for b in key]) + bytes(32)
    inner_end = memoryview(inner)[_BLOCK:]
    outer_end = memoryview(outer)[_BLOCK:]
    outer_end[:] = sha256(bytes(inner[:_BLOCK]) + salt + b"\0\0\0\1").digest()
    digest = sha256(outer).digest()
    result = bytearray(digest)
    for _ in range(iterations - 1):
        inner_end[:] = digest
        outer_end[:] = sha256(inner).digest()
        digest = sha256(outer).digest()
        for i in range(32):
            result[i] ^= digest[i]
    return bytes(result)
