"""The programs of docs/clouds.md against brokers that are as particular as the services."""

from __future__ import annotations

import base64
import socket
import ssl

import pytest

from flatmq_tools.broker import LOOPBACK

from . import page
from .services import HOSTS, KEY, NAME, PATIENCE, PYTHONS, Other, Services

# The highest QoS that each program asks for.
MOST = {page.AWS: 1, page.GRID: 1, page.PASSWORDS: 2, page.HOME: 2}
CHECKED = (page.AWS, page.GRID, page.PASSWORDS)  # behind a check of the name


def said(lines: list[str], what: str) -> list[str]:
    """The rest of each line that begins so."""
    return [line[len(what) + 1 :] for line in lines if line.startswith(what + " ")]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("section", MOST)
def test_messages_go_both_ways(python: str, section: str, services: Services) -> None:
    lines = services.run(python, "session", section, MOST[section])
    refused = said(lines, "@refused")
    assert len(refused) == (2 if MOST[section] < 2 else 0)
    assert all("qos" in text and "2" in text for text in refused)
    if section in CHECKED:
        assert services.checks[section].seen[-1] == HOSTS[section]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("section", CHECKED)
def test_a_host_that_the_service_does_not_know(
    python: str, section: str, services: Services
) -> None:
    program = page.program(section).replace(HOSTS[section], "other.example")
    lines = services.run(python, "fails", section, program=program)
    (why,) = said(lines, "@failed")
    assert why.startswith("tls TLS ")
    assert "closed before the broker's certificate came" in why
    assert services.checks[section].seen[-1] == "other.example"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("section", [page.AWS, page.GRID])
def test_no_certificate(python: str, section: str, services: Services) -> None:
    program = page.program(section)
    without = program.replace(', cert="tls/cert.der", key="tls/key.der"', "")
    assert without != program
    (why,) = said(services.run(python, "fails", section, program=without), "@failed")
    assert "it needs a client certificate" in why


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("section", [page.PASSWORDS, page.HOME])
def test_a_wrong_password(python: str, section: str, services: Services) -> None:
    program = page.program(section).replace('"secret"', '"wrong"')
    (why,) = said(services.run(python, "fails", section, program=program), "@failed")
    assert why.startswith("refused ")


@pytest.mark.parametrize("python", PYTHONS)
def test_home_assistant_without_tls(python: str, services: Services) -> None:
    program = page.program(page.HOME).replace("tls=tls, ", "")
    assert "tls=tls" not in program
    services.run(python, "session", page.HOME, 2, program=program, port=services.closed.port)


@pytest.mark.parametrize("python", PYTHONS)
def test_two_boards_of_the_same_name(python: str, services: Services) -> None:
    lines = services.run(python, "same_name", page.AWS)
    for which in ("@first", "@second"):
        (why,) = said(lines, which)
        assert why.startswith("closed ")
        assert "closed by the peer" in why


@pytest.mark.parametrize("python", PYTHONS)
def test_a_token_that_expires(python: str, services: Services) -> None:
    with Other(services.open) as other, services.hub(services.open) as hub:

        def carry_out(words: list[str]) -> str:
            if words[0] == "advance":
                hub.advance(int(words[1]))
            else:
                other.send(f"devices/{NAME}/messages/devicebound/", words[1])
            return "done"

        lines = services.run(python, "tokens", page.AZURE, carry_out=carry_out)
        events = f"devices/{NAME}/messages/events/"
        other.until(lambda: other.payloads(events) == [b"before", b"after"])
    (unset,) = said(lines, "@unset")
    assert unset.startswith("resource no SAS token, because this clock shows 2021-01-01")
    assert said(lines, "@expired") == ["closed"]
    assert said(lines, "@refused") == ["5"]
    assert set(hub.refused) == {"expiry"}
    assert len(hub.tokens) == len(set(hub.tokens)) == 2


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (base64.b64encode(KEY).decode(), base64.b64encode(b"other").decode(), "signature"),
        ("/devices/pico-1", "/devices/other", "resource"),
        ("/?api-version=2021-04-12", "", "user name"),
        ('b"pico-1"', 'b"other"', "client identifier"),
    ],
)
def test_what_the_hub_refuses(
    python: str, old: str, new: str, why: str, services: Services
) -> None:
    program = page.program(page.AZURE)
    assert old in program
    with services.hub(services.open) as hub:
        lines = services.run(python, "fails", page.AZURE, program=program.replace(old, new))
    assert said(lines, "@failed")[0].startswith("refused ")
    assert hub.refused[0] == why
    assert not hub.tokens


# What stands before the brokers is as particular as the page says.


def handshake(port: int, name: str | None, services: Services, least: ssl.TLSVersion) -> str:
    """The version that a handshake ends with. Raises OSError if it fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = least
    context.load_verify_locations(services.folder / "ca.pem")
    context.load_cert_chain(services.folder / "client.pem", services.folder / "client.key.pem")
    with (
        socket.create_connection((LOOPBACK, port), PATIENCE) as end,
        context.wrap_socket(end, server_hostname=name) as secured,
    ):
        return str(secured.version())


@pytest.mark.parametrize("section", CHECKED)
def test_the_check_of_the_name(section: str, services: Services) -> None:
    port = services.ports[section]
    least = ssl.TLSVersion.TLSv1_2
    assert handshake(port, HOSTS[section], services, least) == "TLSv1.2"
    for name in (None, "other.example"):
        with pytest.raises(OSError):
            handshake(port, name, services, least)
    with pytest.raises(ssl.SSLError):
        handshake(port, HOSTS[section], services, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("section", [page.AWS, page.GRID])
def test_who_the_broker_takes_the_board_for(python: str, section: str, services: Services) -> None:
    """The broker's rules go by the certificate's name or by the user name.

    A policy of AWS may do the first, and Event Grid does the second.
    """
    with Other(services.open) as other:
        services.run(python, "not_mine", section)
        other.until(lambda: other.payloads("dev/pico-1/telemetry") == [b"mine"])
        assert not other.payloads("dev/pico-2/telemetry")
