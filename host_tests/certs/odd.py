"""Certificates that boards refuse or should refuse, and a broker that has them."""

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509

import peer
from flatmq_rigs.certificates import CLIENT, HERE, SERVER, Issued

from .answering import answering

ROOT = Issued("Odd Root", authority=True)
MIDDLE = Issued("Odd Intermediate", ROOT, authority=True)
_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def usage(allowed: str) -> list[tuple[x509.ExtensionType, bool]]:
    """A key usage that allows one thing."""
    return [(x509.KeyUsage(**{name: name == allowed for name in _USAGES}), True)]


def constraints(*, critical: bool) -> list[tuple[x509.ExtensionType, bool]]:
    """Name constraints that exclude localhost."""
    return [(x509.NameConstraints(None, [x509.DNSName("localhost")]), critical)]


def leaf(**options: Any) -> list[Issued]:
    """A certificate for here and its intermediate."""
    return [Issued("broker", MIDDLE, **{"hosts": HERE, **options}), MIDDLE]


def below(**options: Any) -> list[Issued]:
    """A certificate for here, and an intermediate with these options."""
    middle = Issued("Special", ROOT, authority=True, **options)
    return [Issued("broker", middle, hosts=HERE), middle]


def line(count: int, **options: Any) -> list[Issued]:
    """A certificate for here, and so many intermediates."""
    signers = [ROOT]
    for i in range(count):
        signers.append(Issued(f"Signer {i}", signers[-1], authority=True, **options))
    return [Issued("broker", signers[-1], hosts=HERE), *reversed(signers[1:])]


def swapped(first: Issued, second: Issued, third: Issued) -> list[Issued]:
    """A chain whose intermediates are in the other order."""
    return [first, third, second]


def named(*names: str) -> list[Issued]:
    """A certificate with DNS names, which may look like addresses."""
    found = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    return leaf(hosts=(), more=[(found, False)])


class Odd(NamedTuple):
    """A chain that boards refuse.

    problem   what `flatmq tls` says
    error     a part of what a board says
    is_whole  whether a pin, too, does not help
    """

    chain: Callable[[], list[Issued]]
    problem: str
    error: str
    is_whole: bool = False


UNKNOWN = "missing, in wrong order or not allowed"
REFUSED = {
    "wrong order": Odd(lambda: swapped(*line(2)),
        "its certificates are in wrong order: Signer 0 must come after Signer 1", UNKNOWN),
    "missing intermediate": Odd(lambda: leaf()[:1],
        "it does not send the certificate of Odd Intermediate, which signed broker, and ",
        UNKNOWN),
    "9 intermediates": Odd(lambda: line(9), "there are more than 8 intermediates",
        "X509_FATAL_ERROR", True),
    "more than 16 KB": Odd(
        lambda: leaf(hosts=[*HERE, *(f"{'name' * 15}.{i}.example" for i in range(220))]),
        "bytes, more than 16384", "`flatmq tls` may say why", True),
    "critical name constraints": Odd(lambda: below(more=constraints(critical=True)),
        "Special has the critical extension NameConstraints, which boards do not support",
        "X509_INVALID_EXTENSIONS", True),
    "for clients only": Odd(lambda: leaf(usage=CLIENT),
        "its certificate is not for servers (key usage)", "the certificate is not for servers"),
    "path length": Odd(lambda: line(2, path_length=0),
        "Signer 0 may not sign Signer 1: its path length allows 0 intermediates below it, not 1",
        UNKNOWN),
    "signer that may not sign": Odd(lambda: below(more=usage("digital_signature")),
        "Special may not sign broker: it is not an authority that may sign", UNKNOWN),
    "expired intermediate": Odd(lambda: below(days=(-30, -1)), "Special expired on ",
        "has expired by this clock"),
}  # fmt: skip
# What OpenSSL says of chains that boards accept.
UNNOTICED = {
    "name constraints": (lambda: below(more=constraints(critical=False)), "excluded subtree"),
    "intermediate for clients": (lambda: below(usage=CLIENT), "unsuitable certificate purpose"),
}
# An address that is not listed as one.
ADDRESSES = {
    "DNS name": lambda: named("127.0.0.1"),
    "wildcard": lambda: named("*.0.0.1"),
    "common name": lambda: [Issued("127.0.0.1", MIDDLE), MIDDLE],
    "another address": lambda: [Issued("127.0.0.1", MIDDLE, hosts=["127.0.0.2"]), MIDDLE],
}


# Parts of a certificate that are read only when they are used, spoiled so that nobody can.
SPOILED = {
    "version": ("a003020102", "a003020103"),
    "extension": ("0603551d13", "0603551d0f"),  # a KeyUsage that is none
    "extension, twice": ("0603551d13", "0603551d25"),
    "curve": ("06082a8648ce3d030107", "06082a8648ce3d030105"),
}


class Spoiled(Issued):
    """A certificate for here with such a part."""

    def __init__(self, part: str) -> None:
        super().__init__("Spoiled", authority=True, hosts=HERE, usage=SERVER)
        self._old, self._new = map(bytes.fromhex, SPOILED[part])

    @property
    def der(self) -> bytes:
        assert self._old in super().der
        return super().der.replace(self._old, self._new)

    @property
    def pem(self) -> bytes:
        return ssl.DER_cert_to_PEM_cert(self.der).encode()


@contextlib.contextmanager
def broker_with(chain: list[Issued], folder: Path) -> Iterator[str]:
    """The address of something that has this chain and accepts each CONNECT."""
    pem, key = chain[0].write(folder, "broker")
    pem.write_bytes(b"".join(each.pem for each in chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)

    def accept(end: Any) -> None:
        with context.wrap_socket(end, server_side=True) as secured:
            if secured.recv(4096):
                secured.sendall(peer.connack())
            while secured.recv(4096):
                pass

    with answering(accept) as address:
        yield address
