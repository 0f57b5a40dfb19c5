"""The certificates, the key and the pins by which a command connects to a broker with TLS."""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from flatmq.stream_tls_cpython import Link
from flatmq.stream_tls_pin import digest_of

if TYPE_CHECKING:
    from flatmq.stream_tls import TLS

OPTIONS = {"ca": "--ca", "cert": "--cert", "key": "--key", "pin": "--pin"}
"""What a user knows each file by."""


class TrustError(ValueError):
    """The certificates cannot be used; the text names the option, the file and the rule."""


class PinError(ssl.SSLCertVerificationError):
    """The broker's public key is not one of the pinned ones."""


def pins(text: str, option: str = "--pin") -> tuple[bytes, ...]:
    """Return the SHA-256 digests in `text`: Base64, separated by commas.

    "sha256/" may stand before each, as curl and others write it. Raises TrustError.
    """
    found = []
    for one in text.split(","):
        plain = re.fullmatch(r"\s*(?:sha256//?)?([A-Za-z0-9+/]{43}=)\s*", one)
        if plain is None:
            raise TrustError(
                f"{option} must be the SHA-256 of a public key, 32 bytes in Base64, not {one!r}; "
                "`flatmq tls HOST` prints it"
            )
        found.append(base64.b64decode(plain[1]))
    return tuple(found)


def _check(context: ssl.SSLContext, der: bytes | None) -> None:
    """Raise PinError if `context` has pins and the certificate has the key of none of them."""
    if not isinstance(context, Context) or not context.pins:
        return
    found = digest_of(der) if der else b""
    if found not in context.pins:
        shown = base64.b64encode(found).decode()
        raise PinError(
            f"the broker's public key is not the pinned one: its pin is {shown}. If the broker "
            "has a new key, use that pin; if not, another server has answered"
        )


class _Socket(ssl.SSLSocket):
    """A TLS socket that checks the pin as a part of the handshake."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        _check(self.context, self.getpeercert(True))


class _Object(ssl.SSLObject):
    """The same for asyncio."""

    def do_handshake(self) -> None:
        super().do_handshake()
        _check(self.context, self.getpeercert(True))


class Context(ssl.SSLContext):
    """An SSLContext for clients that also checks pins.

    Whoever uses it, be it a socket, asyncio or paho-mqtt, gets an error from the handshake,
    before anything of its own is sent.
    """

    sslsocket_class = _Socket
    sslobject_class = _Object
    pins: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Trust:
    """The way to connect to a broker with TLS.

    A client of flatmq takes its `link`, others its `context`.

    ca        file with the authorities that may have signed the broker's certificate, PEM or DER;
              None for those of this machine
    cert, key PEM files with a certificate to show to the broker, and its key; None for `key` if
              it is in `cert`
    pins      SHA-256 of public keys, one of which the broker must have. With pins and without
              `ca` nothing else is checked: no authority, no name, no date
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    pins: tuple[bytes, ...] = ()
    key_password: str | None = field(default=None, repr=False)
    ciphers: str | None = None
    names: Mapping[str, str] = field(default_factory=lambda: OPTIONS)
    """What errors call each of the files."""
    server_hostname: str | None = None
    """The name that the certificate must have; None: that of the host."""

    def link(self, host: str, port: int) -> Link:
        """Return a link for a client. Raises TrustError if a file cannot be used.

        The files are read again with each connection.
        """
        self.unpinned()
        return Link(cast("TLS", self), host, port, self.unpinned)

    def unpinned(self) -> Context:
        """Return a context for links, which check pins with an error in the client's words.

        Raises TrustError.
        """
        context = self.context()
        context.pins = ()
        return context

    def context(self) -> Context:
        """Return a context that verifies the broker.

        Raises TrustError if a file cannot be used.
        """
        made = Context(ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca:
            self._load_authorities(made, self.ca)
        elif self.pins:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        else:
            made.load_default_certs()
        made.pins = self.pins
        if self.ciphers:
            try:
                made.set_ciphers(self.ciphers)
            except ssl.SSLError as error:
                raise TrustError(
                    f"ciphers must be a list as OpenSSL has it, not {self.ciphers!r}"
                ) from error
        if self.key and not self.cert:
            raise TrustError(f"{self.names['key']} needs its certificate in {self.names['cert']}")
        if self.cert:
            self._load_own(made, self.cert)
        return made

    def _load_authorities(self, made: Context, ca: Path) -> None:
        name = f"{self.names['ca']} {ca}"
        try:
            data = ca.read_bytes()
            made.load_verify_locations(
                cadata=data.decode("ascii", "replace") if b"-----BEGIN" in data else data
            )
        except ssl.SSLError as error:
            raise TrustError(f"{name}: must be a certificate in PEM or DER") from error
        except OSError as error:
            raise TrustError(f"{name}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # an empty file
            raise TrustError(f"{name}: must be a certificate in PEM or DER") from error
        # An authority that was signed by another one is trusted as it is, as boards do.
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN

    def _load_own(self, made: Context, cert: Path) -> None:
        key = self.key or cert
        # OpenSSL's errors name no file.
        for option, file in (("cert", cert), ("key", key)):
            name = f"{self.names[option]} {file}"
            try:
                text = file.read_bytes()
            except OSError as error:
                raise TrustError(f"{name}: cannot be read: {error.strerror}") from error
            wanted = b"CERTIFICATE-----" if option == "cert" else b"PRIVATE KEY-----"
            if wanted not in text:
                what = "a certificate" if option == "cert" else "a private key"
                raise TrustError(f"{name}: must be {what} in PEM")
        mine = f"{self.names['key']} {key}"

        def refuse() -> NoReturn:
            raise TrustError(f"{mine}: must not be encrypted; `openssl pkey` decrypts it")

        password: Any = self.key_password or refuse
        try:
            made.load_cert_chain(cert, key, password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TrustError(
                    f"{mine}: must be the key of the certificate in {self.names['cert']} {cert}; "
                    "it belongs to another certificate"
                ) from error
            raise TrustError(
                f"{self.names['cert']} {cert}, {mine}: cannot be used: {error}"
            ) from error


def given(
    tls: bool,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    pin: Sequence[str] = (),
) -> Trust | None:
    """Return what the options of a command say; None if no TLS is asked for.

    A file or a pin implies TLS. Raises TrustError.
    """
    if not (tls or ca or cert or key or pin):
        return None
    if key and not cert:
        raise TrustError("--key needs its certificate in --cert")
    return Trust(ca, cert, key, pins(",".join(pin)) if pin else ())
