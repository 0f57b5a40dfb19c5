"""The programs of docs/clouds.md against brokers that are as particular as the services."""

import base64

import pytest

import sizes
from conftest import PYTHONS
from observer import Observer
from sizes import spread

from . import page
from .services import HOSTS, KEY, NAME, Services

# The highest QoS that each program asks for.
MOST = {page.AWS: 1, page.GRID: 1, page.PASSWORDS: 2, page.HOME: 2}
CHECKED = (page.AWS, page.GRID, page.PASSWORDS)  # behind a check of the name


def said(lines: list[str], what: str) -> list[str]:
    """The rest of each line that begins so."""
    return [line[len(what) + 1 :] for line in lines if line.startswith(what + " ")]


@spread("section", MOST, python=PYTHONS)
def test_messages_go_both_ways(section: str, python: str, services: Services) -> None:
    lines = services.run(python, "session", section, MOST[section])
    refused = said(lines, "@refused")
    assert len(refused) == (2 if MOST[section] < 2 else 0)
    assert all("qos" in text and "2" in text for text in refused)
    if section in CHECKED:
        assert services.checks[section].seen[-1] == HOSTS[section]


# What is changed in a section's program, and what the client says then; for the hub, what the hub
# says is wrong.
CLOSED = "closed before the broker's certificate came"
NO_CERTIFICATE = (', cert="tls/cert.der", key="tls/key.der"', "", "needs a client certificate")
HUB_KEY = (base64.b64encode(KEY).decode(), base64.b64encode(b"other").decode())
MISTAKES = [
    *((section, HOSTS[section], "other.example", CLOSED) for section in CHECKED),
    *((section, *NO_CERTIFICATE) for section in (page.AWS, page.GRID)),
    *((section, '"secret"', '"wrong"', "refused ") for section in (page.PASSWORDS, page.HOME)),
    (page.AZURE, *HUB_KEY, "signature"),
    (page.AZURE, "/devices/pico-1", "/devices/other", "resource"),
    (page.AZURE, "/?api-version=2021-04-12", "", "user name"),
    (page.AZURE, 'b"pico-1"', 'b"other"', "client identifier"),
]


@spread("mistake", MISTAKES, python=PYTHONS)
def test_what_a_service_refuses(
    mistake: tuple[str, str, str, str], python: str, services: Services
) -> None:
    section, old, new, says = mistake
    assert old in page.program(section)
    program = page.program(section).replace(old, new)
    with services.hub(services.open) as hub:
        (why,) = said(services.run(python, "fails", section, program=program), "@failed")
    if section == page.AZURE:
        assert why.startswith("refused ")
        assert (hub.refused[0], hub.tokens) == (says, [])
    else:
        assert says in f"{why} "
    if says == CLOSED:
        assert why.startswith("tls TLS ")
        assert services.checks[section].seen[-1] == new


@pytest.mark.parametrize("python", sizes.sample(PYTHONS, 1))
def test_home_assistant_without_tls(python: str, services: Services) -> None:
    program = page.program(page.HOME).replace("tls=tls, ", "")
    assert "tls=tls" not in program
    services.run(python, "session", page.HOME, 2, program=program, port=services.closed.port)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_token_that_expires(python: str, services: Services) -> None:
    with (
        Observer(services.open.host, services.open.port) as other,
        services.hub(services.open) as hub,
    ):

        def carry_out(words: list[str]) -> str:
            if words[0] == "advance":
                hub.advance(int(words[1]))
            else:
                other.publish(f"devices/{NAME}/messages/devicebound/", words[1])
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


@spread("section", (page.AWS, page.GRID), python=PYTHONS)
def test_who_the_broker_takes_the_board_for(section: str, python: str, services: Services) -> None:
    """The broker's rules go by the certificate's name or by the user name.

    A policy of AWS may do the first, and Event Grid does the second.
    """
    with Observer(services.open.host, services.open.port) as other:
        services.run(python, "not_mine", section)
        other.until(lambda: other.payloads("dev/pico-1/telemetry") == [b"mine"])
        assert not other.payloads("dev/pico-2/telemetry")
