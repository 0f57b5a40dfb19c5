"""Odd certificates: what boards say, and whether `flatmq tls` said it before."""

import ipaddress
import itertools
from pathlib import Path
from typing import Any

import pytest

import sizes
from conftest import PYTHONS
from flatmq import stream_tls_address
from flatmq_rigs.certificates import Issued
from scenario_child import linked
from typed_command import flatmq

from . import odd


def connected(python: str, address: str, **tls: Any) -> str:
    """Return the error that connect() raises in an interpreter, "" if it raises none."""
    host, port = address.rsplit(":", 1)
    said = linked(python, "secure_scenarios.connect_raises", tls, host=host, port=port)
    (_, _, kind, *detail) = said[0]
    return "" if kind == "none" else " ".join([kind, *detail])


@pytest.fixture
def ca(tmp_path: Path) -> str:
    (tmp_path / "ca.der").write_bytes(odd.ROOT.der)
    return str(tmp_path / "ca.der")


@pytest.mark.parametrize("name", odd.REFUSED)
def test_what_boards_refuse(name: str, ca: str, tmp_path: Path) -> None:
    """Settings are printed only if a board connects with them."""
    case = odd.REFUSED[name]
    chain = case.chain()
    with odd.broker_with(chain, tmp_path) as address:
        assert case.error in connected("micropython", address, ca=ca)
        with_pin = connected("micropython", address, pin=chain[0].pin)
        said = flatmq("tls", address, "--ca", ca)
    assert bool(with_pin) == case.is_whole, with_pin
    assert said.exit_code == 1
    (line,) = [one for one in said.output.splitlines() if one.startswith("Boards refuse it: ")]
    assert case.problem in line
    assert ("--set broker.tls.pin=" in said.output) != case.is_whole
    assert "--set broker.tls.ca=" not in said.output


def test_eight_intermediates(ca: str, tmp_path: Path) -> None:
    with odd.broker_with(odd.line(8), tmp_path) as address:
        assert connected("micropython", address, ca=ca) == ""
        said = flatmq("tls", address, "--ca", ca)
    assert said.exit_code == 0, said.output
    assert "--set broker.tls.ca=" in said.output


def test_a_broker_whose_certificate_cannot_be_read(tmp_path: Path) -> None:
    with odd.broker_with([odd.Spoiled("version")], tmp_path) as address:
        said = flatmq("tls", address)
    assert said.exit_code == 1
    assert said.output == (
        f"Error: {address}: has a certificate that cannot be read: 3 is not a valid X509 version\n"
    )


@pytest.mark.parametrize("name", odd.UNNOTICED)
def test_what_boards_do_not_notice(name: str, ca: str, tmp_path: Path) -> None:
    make, text = odd.UNNOTICED[name]
    with odd.broker_with(make(), tmp_path) as address:
        local = address.replace("127.0.0.1", "localhost")
        assert connected("micropython", local, ca=ca) == ""
        refused = connected("cpython", local, ca=ca)
        said = flatmq("tls", local, "--ca", ca)
    assert text in refused
    assert said.exit_code == 1
    assert text in said.output
    assert "Boards do not notice that" in said.output


@pytest.mark.parametrize(
    ("name", "python"),
    sizes.one_each(itertools.product(odd.ADDRESSES, PYTHONS), lambda case: case),
)
def test_a_host_that_is_an_address_must_be_listed_as_one(
    name: str, python: str, ca: str, tmp_path: Path
) -> None:
    with odd.broker_with(odd.ADDRESSES[name](), tmp_path) as address:
        assert "the certificate is not for 127.0.0.1" in connected(python, address, ca=ca)
        said = flatmq("tls", address, "--ca", ca)
    assert said.exit_code == 1
    assert "not for 127.0.0.1" in said.output


ADDRESSES = ["::", "::1", "1::", "fe80::1:2", "2001:db8:1:2:3:4:5:6", "10.0.0.255"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_in_certificates(address: str) -> None:
    """Of both kinds, among other names."""
    packed = stream_tls_address.packed(address)
    assert packed == ipaddress.ip_address(address).packed
    here = Issued("broker", hosts=["broker.example", "192.168.1.1", address, "::2"])
    for issued, listed in ((here, True), (Issued("broker"), False), (odd.MIDDLE, False)):
        assert stream_tls_address.lists(memoryview(issued.der), packed) == listed
    assert not stream_tls_address.lists(here.der, packed[:-1])
