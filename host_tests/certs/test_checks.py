"""`flatmq image` and certificates: errors for those a board could not use, files for others."""

import inspect
import itertools
import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PrivateFormat,
    load_der_private_key,
    pkcs7,
)

import sizes
from conftest import ROOT as ROOT_FOLDER
from flatmq_rigs import certificates
from flatmq_rigs.certificates import Issued
from flatmq_tools import board_rules, probe
from flatmq_tools import certificates as checks

from . import odd
from .imaged import image, made, on_board

ROOT = Issued("Test Root", authority=True)
SECOND = Issued("Second Root", authority=True)
MIDDLE = Issued("Test Intermediate", ROOT, authority=True)
LEAF = Issued("broker", MIDDLE, hosts=["broker.example"])
CLIENT = Issued("board-1", ROOT, usage=certificates.CLIENT)
SOON = Issued("Old Root", authority=True, days=(-300, 10))
SECRET = CLIENT.key.private_numbers().private_value.to_bytes(32, "big")


def settings(files: dict[str, bytes]) -> dict[str, str]:
    table = json.loads(files["/settings.json"])["broker"]["tls"]
    return {key: table[key] for key in ("ca", "cert", "key", "pin")}


def test_pem_becomes_der_and_the_key_goes_nowhere_else(tmp_path: Path) -> None:
    ca, _ = ROOT.write(tmp_path, "ca")
    cert, key = CLIENT.write(tmp_path, "client")
    said = made(tmp_path, f"tls.ca={ca}", f"tls.cert={cert}", f"tls.key={key}")
    files = on_board(tmp_path)
    assert files["/tls/ca.der"] == ROOT.der
    assert files["/tls/cert.der"] == CLIENT.der
    private = load_der_private_key(files["/tls/key.der"], None)
    assert private.public_key() == CLIENT.key.public_key()
    assert settings(files) == {
        "ca": "/tls/ca.der",
        "cert": "/tls/cert.der",
        "key": "/tls/key.der",
        "pin": "",
    }
    for path, content in files.items():
        assert (SECRET in content) == (path == "/tls/key.der"), path
    body = key.read_text().splitlines()[1]
    assert body not in said
    assert body.encode() not in (tmp_path / "image.bin").read_bytes()


def test_a_romfs_has_no_key_in_it(tmp_path: Path) -> None:
    cert, key = CLIENT.write(tmp_path, "client")
    given = [f"tls.pin={LEAF.pin}", f"tls.cert={cert}", f"tls.key={key}"]
    made(tmp_path, *given, more=["--romfs"])
    assert SECRET not in (tmp_path / "esp32.romfs").read_bytes()
    assert "/tls/key.der" in on_board(tmp_path)


# What may be in broker.tls.ca: the certificate that goes to the board, and a remark.
OTHER = "Test Root goes to the board; the other"
AUTHORITIES: dict[str, tuple[bytes, Issued, str]] = {
    "PEM": (ROOT.pem, ROOT, ""),
    "DER": (ROOT.der, ROOT, ""),
    "text around it": (b"Subject: a root\r\n" + ROOT.pem.replace(b"\n", b"\r\n"), ROOT, ""),
    "bundle": (MIDDLE.pem + ROOT.pem, ROOT, OTHER),
    "full chain": (LEAF.pem + MIDDLE.pem + ROOT.pem, ROOT, OTHER),
    "twice the same": (ROOT.pem + ROOT.pem, ROOT, ""),
    "PKCS #7": (pkcs7.serialize_certificates([ROOT.certificate], Encoding.DER), ROOT, ""),
    "PKCS #7 in PEM": (pkcs7.serialize_certificates([ROOT.certificate], Encoding.PEM), ROOT, ""),
    "an intermediate": (LEAF.pem + MIDDLE.pem, MIDDLE, "Test Intermediate is not a root"),
    "expires soon": (SOON.pem, SOON, "Old Root expires soon, on "),
}


@pytest.mark.parametrize("kind", AUTHORITIES)
def test_the_authority_is_found_in(kind: str, tmp_path: Path) -> None:
    data, found, remark = AUTHORITIES[kind]
    (tmp_path / "ca").write_bytes(data)
    said = made(tmp_path, f"tls.ca={tmp_path / 'ca'}")
    assert on_board(tmp_path)["/tls/ca.der"] == found.der
    assert remark in said
    if not remark:
        assert OTHER not in said


def test_the_certificate_of_the_key_is_found_in_a_chain(tmp_path: Path) -> None:
    ca, _ = ROOT.write(tmp_path, "ca")
    mine = Issued("board-2", MIDDLE, usage=certificates.CLIENT)
    cert, key = mine.write(tmp_path, "client")
    cert.write_bytes(MIDDLE.pem + mine.pem)
    said = made(tmp_path, f"tls.ca={ca}", f"tls.cert={cert}", f"tls.key={key}")
    assert on_board(tmp_path)["/tls/cert.der"] == mine.der
    assert "the broker has to know Test Intermediate" in said


@pytest.mark.parametrize(
    ("kind", "encoding", "form"),
    sizes.one_each(
        itertools.product(
            ("P-256", "RSA 2048"),
            (Encoding.PEM, Encoding.DER),
            (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL),
        ),
        lambda case: case[1:],
    ),
)
def test_every_form_of_a_key(
    kind: str, encoding: Encoding, form: PrivateFormat, tmp_path: Path
) -> None:
    mine = Issued("board-3", ROOT, kind=kind)
    cert, key = mine.write(tmp_path, "client")
    key.write_bytes(mine.key_bytes(encoding, form))
    made(tmp_path, f"tls.pin={LEAF.pin}", f"tls.cert={cert}", f"tls.key={key}")
    assert b"/tls/key.der" in (tmp_path / "image.bin").read_bytes()


def test_a_pin_alone_puts_no_file_on_the_board(tmp_path: Path) -> None:
    pins = f"{LEAF.pin},sha256/{ROOT.pin}"
    made(tmp_path, f"tls.pin={pins}")
    files = on_board(tmp_path)
    assert not [path for path in files if path.startswith("/tls")]
    assert settings(files)["pin"] == f"{LEAF.pin},{ROOT.pin}"


def test_what_is_said_where_no_certificate_is_needed(tmp_path: Path) -> None:
    """For a board without a network, and without TLS."""
    ca, _ = ROOT.write(tmp_path, "ca")
    said = made(tmp_path, f"tls.ca={ca}", board="pico")
    assert "broker.tls is left out: Raspberry Pi Pico has no network" in said
    assert b"/tls/ca.der" not in (tmp_path / "image.bin").read_bytes()
    assert "broker.tls" not in image(tmp_path).output


_OLD = Issued("Old Root", authority=True, days=(-300, -3))
_COMING = Issued("Coming Root", authority=True, days=(5, 300))
_CONSTRAINED = Issued("Narrow Root", authority=True, more=odd.constraints(critical=True))
_NO_SIGNER = Issued("No Signer", authority=True, more=odd.usage("digital_signature"))
_FOR_CLIENTS = Issued("For Clients", usage=certificates.CLIENT)
_SMALL = Issued("Small Root", authority=True, kind="RSA 1024")
_EDWARDS = Issued("board-5", ROOT, kind="Ed25519")
_SERVER = Issued("board-6", ROOT, usage=certificates.SERVER)
_PKCS12 = bytes.fromhex("3082") + b"\x05\x00" + b"\x02\x01\x03" + bytes(1200)
_OPENSSL = PrivateFormat.TraditionalOpenSSL
_LOCKED = "my.key: must not be encrypted"

# What is in the file of broker.tls.ca, and the error.
AUTHORITY_ERRORS = [
    (b"", "ca.pem: must be a certificate in PEM or DER, not an empty file"),
    (b"<html>", "ca.pem: must be a certificate in PEM or DER, not a web page"),
    (_PKCS12, "not a PKCS #12 container or a key"),
    (ROOT.key_bytes(), "ca.pem: must be a certificate in PEM or DER, not a private key"),
    (
        ROOT.pem + SECOND.pem,
        "ca.pem: holds 2 authorities (Second Root, Test Root), and a board takes one; `flatmq tls",
    ),
    (LEAF.pem, "broker: must be an authority, not a certificate that Test Interm"),
    (_OLD.pem, "Old Root: has expired, on "),
    (_COMING.pem, "Coming Root: is not valid before "),
    (_CONSTRAINED.pem, "Narrow Root: has the critical extension NameConstraints, which boards do"),
    (_NO_SIGNER.pem, "No Signer: must be allowed to sign others (key usage)"),
    (_FOR_CLIENTS.pem, "For Clients: must be allowed to be a broker's (key usage)"),
    (_SMALL.pem, "Small Root: must have a key of RSA of 2048 to 4096 bits, or P-256"),
    *(
        (data, "ca.pem: has a certificate that cannot be read: ")
        for part in odd.SPOILED
        for data in (odd.Spoiled(part).der, odd.Spoiled(part).pem)
    ),
]
# The same of broker.tls.cert and broker.tls.key.
OWN_ERRORS = [
    (CLIENT.pem, SECOND.key_bytes(), "my.key: must be the key of the certificate in broker"),
    (CLIENT.pem, CLIENT.key_bytes(password=b"x"), _LOCKED),
    (CLIENT.pem, CLIENT.key_bytes(Encoding.DER, password=b"x"), _LOCKED),
    (CLIENT.pem, CLIENT.key_bytes(form=_OPENSSL, password=b"x"), _LOCKED),
    (CLIENT.pem, CLIENT.pem, "my.key: must be a private key, not a certificate"),
    (CLIENT.pem, b"junk", "my.key: must be a private key in PEM or DER"),
    (_EDWARDS.pem, _EDWARDS.key_bytes(), "for a board, not Ed25519"),
    (_SERVER.pem, _SERVER.key_bytes(), "board-6: must be a certificate for clients"),
    (CLIENT.pem + SECOND.pem, CLIENT.key_bytes(), "they do not belong together"),
]
# Settings that need no file, and the error.
SETTINGS_ERRORS = [
    (["ca=none.pem"], "none.pem: cannot be read: No such file"),
    (["cert=a.pem", "key=b.pem"], "broker.tls.cert needs broker.tls.ca or broker.tls"),
    (["key=b.pem"], "broker.tls.key needs its certificate in"),
    (["pin=x"], "broker.tls.pin must be the SHA-256 of a public key, 32 bytes in B"),
    ([f"pin={LEAF.pin}", "key=b.pem"], "broker.tls.key needs its certificate in"),
    ([f"pin={LEAF.pin}", "cert=b.pem"], "broker.tls.cert needs its private key"),
]
ERRORS = [
    *(({"ca.pem": data}, ["ca=ca.pem"], error) for data, error in AUTHORITY_ERRORS),
    *(
        ({"my.pem": cert, "my.key": key}, [f"pin={LEAF.pin}", "cert=my.pem", "key=my.key"], error)
        for cert, key, error in OWN_ERRORS
    ),
    *(({}, given, error) for given, error in SETTINGS_ERRORS),
]


@pytest.mark.parametrize(("files", "given", "error"), ERRORS)
def test_an_error_names_the_setting_and_the_file(
    files: dict[str, bytes],
    given: list[str],
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in files.items():
        Path(name).write_bytes(data)
    said = image(tmp_path, *(f"tls.{each}" for each in given))
    assert said.exit_code == 1
    assert said.output.startswith("Error: broker.tls.")
    assert error in said.output
    assert said.output.count("\n") == 1
    assert not (tmp_path / "image.bin").exists()
    for line in CLIENT.key_bytes().decode().splitlines()[1:-1]:
        assert line not in said.output


def test_the_page_has_the_texts_of_the_checks() -> None:
    page = (ROOT_FOLDER / "docs" / "certificates.md").read_text()
    sources = "".join(map(inspect.getsource, (checks, probe, board_rules)))
    texts = re.sub(r'"\s*f?"', "", sources)
    table = page.partition("## What the checks say")[2]
    rows = re.findall(r"^\| (\w[^|]+) \|", table, re.MULTILINE)[1:]
    assert len(rows) == 7
    for row in rows:
        for part in re.split(r" ?…|(?<=holds) N |, ", row):
            assert part in texts, part
