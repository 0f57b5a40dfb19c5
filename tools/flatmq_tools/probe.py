"""`flatmq tls`: what a broker presents by TLS, and what a board needs to connect to it."""

from __future__ import annotations

import base64
import contextlib
import datetime
import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning

from flatmq.stream_tls_pin import digest_of

from . import certificates, folders
from .address import TLS_PORT, address
from .board_rules import Problem, names_of, problems
from .errors import ToolError
from .plain import PlainConsole

PATIENCE = 10.0  # seconds for each of the connections
_PIECE = 16384  # bytes read at once

# What boards can do (MicroPython's Mbed TLS): a broker that has none of it is refused by them.
_CIPHERS = "ECDHE+AESGCM:ECDHE+AES:RSA+AES:@SECLEVEL=0"
_CURVE = "prime256v1"

# Of a TLS record (RFC 5246, section 6.2) and a handshake message (section 7.4).
_ALERT, _HANDSHAKE, _CHANGE_CIPHER_SPEC = 21, 22, 20
_CERTIFICATE, _CERTIFICATE_REQUEST = 11, 13
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO")
_PROTOCOL_VERSION = 70  # the alert of a broker that has TLS 1.3 only


@dataclass
class Presented:
    """The certificates that a broker presents."""

    chain: list[x509.Certificate]
    """Its own certificate first."""
    version: str = ""
    cipher: str = ""
    """Both empty if the handshake did not get to its end."""
    asks: bool = False
    """Whether it asks for a client certificate."""
    needs: bool = False
    """Whether it refuses clients without one."""


@dataclass
class Verdict:
    """The answer to whether the chain leads to an authority that is trusted here."""

    error: str = ""
    """Why not; "" if it does."""
    authority: x509.Certificate | None = None
    """The certificate that a board verifies the broker by, if it is known."""
    trusted: list[x509.Certificate] = field(default_factory=list)

    def anchors(self, ca: Path | None) -> list[x509.Certificate]:
        """Return what a board would trust: what is in `ca`, or else the authority."""
        return self.trusted if ca or not self.authority else [self.authority]


def presented(host: str, port: int) -> Presented:
    """Connect as a board does, trusting anything, and note what the broker sends.

    Raises ToolError.
    """
    context = _any_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    received = bytearray()
    where = f"{host}:{port}"
    done = closed = False
    reason = ""
    deadline = time.monotonic() + PATIENCE
    with _connected(host, port) as sock:
        try:
            while not (done or closed):
                try:
                    tls.do_handshake()
                    done = True
                except ssl.SSLWantReadError:
                    pass
                if outgoing.pending:
                    sock.sendall(outgoing.read())
                if not done:
                    sock.settimeout(max(0.01, deadline - time.monotonic()))
                    data = sock.recv(_PIECE)
                    closed = not data
                    received += data
                    incoming.write(data)
        except ssl.SSLError as error:
            reason = str(error.reason or error)
        except TimeoutError as error:
            raise ToolError(
                f"{where}: accepts connections, but sends no answer within {PATIENCE:g} s"
            ) from error
        except OSError:
            closed = True
    messages = list(_messages(bytes(received)))
    kinds = [kind for kind, _ in messages]
    with certificates.reading(where):
        chain = certificates.whole(map(x509.load_der_x509_certificate, _certificates(messages)))
    if not chain:
        raise ToolError(_why_no_tls(where, bytes(received), reason))
    # Until TLS 1.2 a broker that needs a client certificate ends the handshake without one.
    asks = _CERTIFICATE_REQUEST in kinds
    if not done and not asks:
        raise ToolError(f"{where}: the handshake failed: {reason or 'the broker closed it'}")
    cipher = tls.cipher()
    return Presented(
        chain, tls.version() or "", cipher[0] if done and cipher else "", asks, not done
    )


def _any_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_ecdh_curve(_CURVE)
    return context


@contextlib.contextmanager
def _connected(host: str, port: int) -> Iterator[socket.socket]:
    try:
        sock = socket.create_connection((host, port), PATIENCE)
    except socket.gaierror as error:
        raise ToolError(f"{host}: no such host") from error
    except ConnectionRefusedError as error:
        raise ToolError(f"{host}:{port}: connection refused: nothing listens there") from error
    except OSError as error:
        raise ToolError(f"{host}:{port}: cannot be reached: {error}") from error
    with sock:
        yield sock


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and the content of each whole record that is not encrypted."""
    while len(data) >= 5:
        end = 5 + int.from_bytes(data[3:5], "big")
        if data[0] == _CHANGE_CIPHER_SPEC or len(data) < end:
            return
        yield data[0], data[5:end]
        data = data[end:]


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and the body of each handshake message that is not encrypted."""
    whole = b"".join(content for kind, content in _records(data) if kind == _HANDSHAKE)
    while len(whole) >= 4:
        end = 4 + int.from_bytes(whole[1:4], "big")
        if len(whole) < end:
            return
        yield whole[0], whole[4:end]
        whole = whole[end:]


def _certificates(messages: list[tuple[int, bytes]]) -> Iterator[bytes]:
    for kind, body in messages:
        if kind == _CERTIFICATE:
            at = 3
            while at + 3 <= len(body):
                end = at + 3 + int.from_bytes(body[at : at + 3], "big")
                yield body[at + 3 : end]
                at = end


def _why_no_tls(where: str, received: bytes, reason: str) -> str:
    alerts = [content[1] for kind, content in _records(received)
              if kind == _ALERT and len(content) == 2]  # fmt: skip
    if _PROTOCOL_VERSION in alerts:
        return (
            f"{where}: has TLS 1.3 only, or none later than TLS 1.1; boards have TLS 1.2. Allow "
            "TLS 1.2 at the broker"
        )
    if alerts:
        return (
            f"{where}: refuses what boards offer, TLS 1.2 with AES and P-256: {reason} "
            f"(alert {alerts[0]})"
        )
    if received and any(one in reason for one in _NO_TLS):
        return f"{where}: does not speak TLS; brokers usually do at port {TLS_PORT}"
    return (
        f"{where}: closed the connection without an answer, as a broker does that has no TLS at "
        f"this port; brokers usually have it at {TLS_PORT}"
    )


def verified(host: str, port: int, found: Presented, ca: Path | None) -> Verdict:
    """Connect again and verify what was found, by the authorities in `ca` or of this machine.

    Raises ToolError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # names are compared apart
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    verdict = Verdict()
    if ca:
        verdict.trusted = certificates.read(ca, f"--ca {ca}")
        for each in verdict.trusted:
            context.load_verify_locations(cadata=each.public_bytes(Encoding.DER))
    else:
        context.load_default_certs()
    with _connected(host, port) as sock:
        tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        try:
            tls.do_handshake()
        except ssl.SSLCertVerificationError as error:
            verdict.error = error.verify_message
        except OSError as error:
            # Without a client certificate that it needs, it has passed by then.
            if not (found.needs and tls.cipher()):
                raise ToolError(f"{host}:{port}: the second connection failed: {error}") from error
        finally:
            tls.close()
    # Of the authorities of a folder these are those that were needed.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # of old authorities
        for der in [] if ca else context.get_ca_certs(binary_form=True):
            with contextlib.suppress(ToolError), certificates.reading("one of many"):
                verdict.trusted += certificates.whole([x509.load_der_x509_certificate(der)])
    verdict.authority = _authority(found.chain, verdict.trusted)
    return verdict


def _authority(
    chain: list[x509.Certificate], trusted: list[x509.Certificate]
) -> x509.Certificate | None:
    """Return the end of the chain.

    It is a trusted authority as soon as there is one, otherwise a root that the broker sends.
    """
    at = chain[0]
    for _ in chain:
        for each in trusted:
            if each == at or certificates.signed_by(at, each):
                return each
        if certificates.is_root(at):
            return at
        following = [each for each in chain if each != at and certificates.signed_by(at, each)]
        if not following:
            return None
        at = following[0]
    return at if certificates.is_root(at) else None


def main(broker: str, *, ca: Path | None = None, save: Path | None = None) -> int:
    """Show the certificates of the broker at HOST[:PORT] and the settings for a board.

    Returns 0, or 1 if boards would refuse it as it is. Raises ToolError.

    ca: authorities to verify it by, instead of this machine's. save: a file for the authority.
    """
    host, port = address(broker, True)
    console = PlainConsole()
    found = presented(host, port)
    verdict = verified(host, port, found, ca)
    now = certificates.now()
    for line in _described(host, port, found, now):
        console.print(line, soft_wrap=True)
    refused = list(problems(host, found.chain, verdict.anchors(ca), now, ca))
    lines = _verdict(verdict, ca) + [f"Boards refuse it: {problem.text}" for problem in refused]
    # Only OpenSSL has found a fault in what a trusted authority signed.
    unnoticed = bool(verdict.error) and not refused and verdict.authority in verdict.trusted
    if unnoticed:
        lines.append("Boards do not notice that: Mbed TLS does not check it.")
    lines += _settings(host, port, found, verdict, save, refused)
    for line in lines:
        console.print(line, soft_wrap=True)
    if save is not None:
        line = _save(verdict, save)
        console.print(line, soft_wrap=True)
    return 1 if refused or unnoticed else 0


def _described(host: str, port: int, found: Presented, now: datetime.datetime) -> Iterator[str]:
    spoken = f"{found.version}, {found.cipher}" if found.cipher else found.version or "TLS 1.2"
    yield f"{host}:{port}  {spoken}"
    for number, each in enumerate(found.chain):
        ends = each.not_valid_after_utc
        if number:
            what = "root" if certificates.is_root(each) else "intermediate"
        else:
            what = "the broker's"
        yield f"  {certificates.common_name(each.subject)}  ({what})"
        if not number:
            yield f"    names      {', '.join(names_of(each)) or 'none'}"
        yield f"    signed by  {certificates.common_name(each.issuer)}"
        yield (
            f"    valid      {certificates.day(each.not_valid_before_utc)} to "
            f"{certificates.day(ends)}, {_left(ends - now)}"
        )
        yield f"    key        {certificates.key_type(each.public_key())}"
    if found.needs:
        yield "It needs a client certificate."
    elif found.asks:
        yield "It asks for a client certificate, but does not require one."
    else:
        yield "It does not ask for a client certificate."


def _left(span: datetime.timedelta) -> str:
    return f"{span.days} days left" if span.days >= 0 else "expired"


def _verdict(verdict: Verdict, ca: Path | None) -> list[str]:
    by = f"by {ca}" if ca else "by the authorities of this machine"
    if not verdict.error:
        return [f"Its certificate is verified {by}."]
    lines = [f"Its certificate is not verified {by}: {verdict.error}."]
    if verdict.authority is not None:
        fingerprint = verdict.authority.fingerprint(hashes.SHA256()).hex(":").upper()
        lines += [
            "Whoever answered sent this authority along. Ask the broker's operator whether it is "
            "theirs:",
            f"  SHA-256 {fingerprint}",
        ]
    return lines


def _save(verdict: Verdict, file: Path) -> str:
    if verdict.authority is None:
        raise ToolError(f"--save {file}: {_unknown()}")
    der = file.suffix.lower() in (".der", ".cer")
    folders.write(file, verdict.authority.public_bytes(Encoding.DER if der else Encoding.PEM))
    return f"{certificates.common_name(verdict.authority.subject)} is saved in {file}."


def _unknown() -> str:
    return (
        "the broker does not send the authority that signed its certificate, and this machine "
        "does not know it: ask the broker's operator for the file, or use the pin"
    )


def _settings(
    host: str,
    port: int,
    found: Presented,
    verdict: Verdict,
    save: Path | None,
    refused: list[Problem],
) -> Iterator[str]:
    """Yield the settings with which a board connects, if there are any."""
    where = f"--set broker.host={host}" + (
        f" --set broker.port={port}" if port != TLS_PORT else ""
    )
    mine = " --set broker.tls.cert=FILE --set broker.tls.key=FILE" if found.needs else ""
    if not all(problem.pin_helps for problem in refused):
        return
    der = found.chain[0].public_bytes(Encoding.DER)
    pin = base64.b64encode(digest_of(der)).decode()
    yield ""
    if refused:
        yield "For a board, by the broker's key alone (until it gets another one):"
    else:
        yield "For a board, by the authority (it needs the time):"
        if verdict.authority is None:
            yield f"  not possible yet: {_unknown()}"
        else:
            name = certificates.common_name(verdict.authority.subject)
            if save is None:
                yield f"  save {name} with --save ca.pem, and then"
            yield f"  {where} --set broker.tls.ca={save or 'ca.pem'}{mine}"
        yield "or by the broker's key (until it gets another one):"
    yield f"  {where} --set broker.tls.pin={pin}{mine}"
