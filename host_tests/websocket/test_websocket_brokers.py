"""Scenarios over WebSocket against mosquitto, on both interpreters, also through a bad network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flatmq_rigs.links import Listening
from flatmq_rigs.proxy import Proxy, Rules, Way
from websocket.over_websocket import PYTHONS, run

SCENARIOS = [
    "publish_subscribe.each_qos_to_each",
    "publish_subscribe.empty_and_large_payloads",
    "publish_subscribe.burst_in_order",
    "large.from_a_buffer",
    "large.from_a_file",
    "sessions.messages_queued_while_away",
    "wills.not_after_disconnect",
    "run_large.there_and_back",
]
CUTS = 12


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port for WebSockets of a broker."""
    with Listening("websocket") as listening:
        yield listening.port


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, python: str, mask: str, port: int) -> None:
    run(python, scenario, port, mask)


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("python", PYTHONS)
def test_byte_by_byte(python: str, mask: str, port: int) -> None:
    rules = Rules(Way(trickle=True), Way(trickle=True))
    with Proxy("127.0.0.1", port, lambda count: rules) as proxy:
        for scenario in ("publish_subscribe.each_qos_to_each", "large.from_a_buffer"):
            run(python, scenario, proxy.port, mask)


def _cut_up(count: int) -> Rules:
    return Rules(up=Way(limit=190 + 97 * count)) if count < CUTS else Rules()


def _cut_down(count: int) -> Rules:
    return Rules(down=Way(limit=20 + 83 * count)) if count < CUTS else Rules()


@pytest.mark.parametrize("mask", ["random", "zero"])
@pytest.mark.parametrize("rules", [_cut_up, _cut_down], ids=["up", "down"])
@pytest.mark.parametrize("python", PYTHONS)
def test_each_message_arrives_once_though_connections_are_cut(
    python: str,
    rules: Callable[[int], Rules],
    mask: str,
    port: int,
) -> None:
    """In the upgrade, in a header, in a payload: wherever the bytes run out."""
    with Proxy("127.0.0.1", port, rules) as proxy:
        losses = run(python, "run_outages.each_message_once", proxy.port, mask)[0]
    assert (
        int(losses.removeprefix("@losses ")) >= CUTS // 2
    )  # what is resent decides how many cuts it takes


@pytest.fixture(scope="module")
def secure() -> Iterator[tuple[int, Path]]:
    """The port of a broker for WebSockets over TLS, and its authority."""
    with Listening("websocket+tls") as listening:
        yield listening.port, Path(listening.ca)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "scenario",
    ["publish_subscribe.each_qos_to_each", "large.from_a_buffer", "run_large.there_and_back"],
)
def test_over_tls(scenario: str, python: str, secure: tuple[int, Path]) -> None:
    port, ca = secure
    run(python, scenario, port, ca=ca)


@pytest.mark.parametrize("python", PYTHONS)
def test_over_tls_each_message_arrives_once_though_connections_are_cut(
    python: str, secure: tuple[int, Path]
) -> None:
    """In the handshake, in the upgrade, and later."""
    port, ca = secure
    with Proxy("127.0.0.1", port, lambda n: Rules(Way(limit=300 * n)) if n < 8 else Rules()) as p:
        losses = run(python, "run_outages.each_message_once", p.port, ca=ca)[0]
    assert int(losses.removeprefix("@losses ")) >= 4


@pytest.mark.parametrize("python", PYTHONS)
def test_over_tls_a_broker_that_is_not_trusted_is_named(
    python: str, secure: tuple[int, Path]
) -> None:
    port, ca = secure
    told = run(python, "run_reports.first_error", port, ca=ca.with_name("other.der"))[0]
    assert told.startswith("@ tls TLS 127.0.0.1:")
