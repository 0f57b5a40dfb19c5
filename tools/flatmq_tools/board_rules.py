"""The rules by which Mbed TLS, the TLS of boards, refuses the certificates of a broker.

It is stricter than OpenSSL in some rules. In others it is less strict: see docs/tls.md.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from . import certificates
from .certificates import common_name, day

INTERMEDIATES = 8  # between the broker's certificate and the authority, at most
_BYTES = 16384  # of the message that has all certificates
_HEAD = 7  # bytes of it before the first certificate; each has 3 more bytes in front


class Problem(NamedTuple):
    """A reason why boards refuse a broker, and whether a `pin` instead of `ca` avoids it."""

    text: str
    pin_helps: bool


def problems(
    host: str,
    chain: list[x509.Certificate],
    anchors: list[x509.Certificate],
    now: datetime.datetime,
    ca: Path | None,
) -> Iterator[Problem]:
    """Yield why a board that verifies by one of the `anchors` would not connect.

    Without a file `ca` of authorities, an unknown authority is no problem of the broker.
    """
    leaf = chain[0]
    path, fault = _path(chain, anchors, ca)
    for each in path:
        which = "its certificate" if each is leaf else f"{common_name(each.subject)}"
        if each.not_valid_after_utc < now:
            yield Problem(f"{which} expired on {day(each.not_valid_after_utc)}", True)
        if each.not_valid_before_utc > now:
            yield Problem(f"{which} is not valid before {day(each.not_valid_before_utc)}", True)
    if not has_name(leaf, host):
        names = ", ".join(names_of(leaf)) or "no host"
        yield Problem(f"its certificate is for {names}, not for {host}", True)
    if not certificates.may_serve(leaf):
        yield Problem("its certificate is not for servers (key usage)", True)
    if fault:
        yield fault
    if not certificates.board_takes(leaf.public_key()):
        yield Problem(f"its key is {certificates.key_type(leaf.public_key())}", False)
    for each in chain:
        for name in certificates.unknown_to_boards(each):
            yield Problem(
                f"{common_name(each.subject)} has the critical extension {name}, which boards do "
                "not support",
                False,
            )
    size = _HEAD + sum(3 + len(each.public_bytes(Encoding.DER)) for each in chain)
    if size > _BYTES:
        yield Problem(f"its certificates take {size} bytes, more than {_BYTES}", False)


def _path(
    chain: list[x509.Certificate], anchors: list[x509.Certificate], ca: Path | None
) -> tuple[list[x509.Certificate], Problem | None]:
    """Follow a chain as boards do. Returns the certificates up to an authority, and what is wrong.

    Boards look for the signer of each among the authorities, then among those that come after it.
    """
    path = [chain[0]]
    at = 0
    if chain[0] in anchors and certificates.is_root(chain[0]):
        return path, None
    while True:
        child = path[-1]
        below = len(path) - 1
        found = [each for each in anchors if _signs(each, child, below)]
        if found:
            return [*path, found[0]], None
        after = [i for i in range(at + 1, len(chain)) if _signs(chain[i], child, below)]
        if not after:
            return path, _no_signer(child, below, [*chain, *anchors], ca)
        at = after[0]
        path.append(chain[at])
        if below >= INTERMEDIATES:
            return path, Problem(
                f"there are more than {INTERMEDIATES} intermediates between its certificate and "
                "the authority",
                False,
            )


def _signs(signer: x509.Certificate, child: x509.Certificate, below: int) -> bool:
    return certificates.signed_by(child, signer) and not _flaw(signer, below)


def _flaw(signer: x509.Certificate, below: int) -> str:
    """Return why an authority may not sign above so many intermediates, "" if it may."""
    if not certificates.may_sign(signer):
        return "it is not an authority that may sign (basic constraints, key usage)"
    with contextlib.suppress(x509.ExtensionNotFound):
        limit = signer.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
        if limit is not None and limit < below:
            return f"its path length allows {limit} intermediates below it, not {below}"
    return ""


def _no_signer(
    child: x509.Certificate, below: int, known: list[x509.Certificate], ca: Path | None
) -> Problem | None:
    """Return why a board finds no signer of `child`, None if the authority is just not known."""
    name, issuer = common_name(child.subject), common_name(child.issuer)
    signers = [each for each in known if each != child and certificates.signed_by(child, each)]
    if signers:
        flaw = _flaw(signers[0], below)
        return Problem(
            f"{issuer} may not sign {name}: {flaw}"
            if flaw
            else f"its certificates are in wrong order: {issuer} must come after {name}",
            True,
        )
    if not ca:
        return None
    if certificates.is_root(child):
        return Problem(f"its authority is {name}, which is not in {ca}", True)
    return Problem(
        f"it does not send the certificate of {issuer}, which signed {name}, and {ca} does not "
        "hold it",
        True,
    )


def names_of(certificate: x509.Certificate) -> list[str]:
    """The names that a client may connect to: DNS names and addresses, or else the common name."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [common_name(certificate.subject)]
    return [
        *found.get_values_for_type(x509.DNSName),
        *map(str, found.get_values_for_type(x509.IPAddress)),
    ]


def has_name(certificate: x509.Certificate, host: str) -> bool:
    """Return whether the certificate is for that host (RFC 6125: `*` is a whole first label)."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        for each in certificate.extensions:
            if isinstance(each.value, x509.SubjectAlternativeName):
                return address in each.value.get_values_for_type(x509.IPAddress)
        return False
    wanted = host.lower().rstrip(".")
    rest = wanted.partition(".")[2]
    return any(
        name.lower() == wanted or (rest and name.lower() == f"*.{rest}")
        for name in names_of(certificate)
    )
