"""Scenarios over WebSocket against mosquitto, on both interpreters, also through a bad network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sizes
from device import on_device
from flatmq_rigs.links import Listening
from flatmq_rigs.proxy import Proxy, Rules, Way
from flatmq_tools.broker import Broker
from sizes import spread
from websocket.over_websocket import PYTHONS, run

SCENARIOS = [
    "publish_subscribe.each_qos_to_each",
    "publish_subscribe.empty_and_large_payloads",
    "publish_subscribe.burst_in_order",
    "large.from_a_buffer",
    "large.from_a_file",
    "sessions.messages_queued_while_away",
    "wills.not_after_disconnect",
    "websocket_scenarios.there_and_back",
]
OVER_TLS = SCENARIOS[0], SCENARIOS[3], SCENARIOS[7]
MASKS = ("random", "zero")  # of frames: over TLS they are zero
CUTS = 12
# Where connections are cut: in the upgrade, in a header, in a payload.
RULES = {
    "up": lambda count: Rules(up=Way(limit=190 + 97 * count)) if count < CUTS else Rules(),
    "down": lambda count: Rules(down=Way(limit=20 + 83 * count)) if count < CUTS else Rules(),
    "over TLS": lambda count: Rules(Way(limit=300 * count)) if count < 8 else Rules(),
}
WAYS = [(mask, way) for mask in MASKS for way in ("up", "down")] + [("TLS", "over TLS")]


@pytest.fixture(scope="module")
def plain() -> Iterator[tuple[int, None]]:
    """The port for WebSockets of a broker, which has no authority."""
    with Listening("websocket") as listening:
        yield listening.port, None


@pytest.fixture(scope="module")
def secure() -> Iterator[tuple[int, Path]]:
    """The port of a broker for WebSockets over TLS, and its authority."""
    with Listening("websocket+tls") as listening:
        yield listening.port, Path(listening.ca)


@spread("scenario", SCENARIOS, mask=MASKS, python=PYTHONS)
def test_scenario(scenario: str, mask: str, python: str, plain: tuple[int, None]) -> None:
    run(python, scenario, plain[0], mask)


@spread("scenario", OVER_TLS, python=PYTHONS)
def test_over_tls(scenario: str, python: str, secure: tuple[int, Path]) -> None:
    run(python, scenario, secure[0], ca=secure[1])


@pytest.mark.parametrize(
    ("mask", "way", "python"),
    sizes.one_each([(*way, python) for way in WAYS for python in PYTHONS], lambda case: case[1]),
)
def test_each_message_arrives_once_though_connections_are_cut(
    mask: str, way: str, python: str, plain: tuple[int, None], secure: tuple[int, Path]
) -> None:
    port, ca = secure if mask == "TLS" else plain
    with Proxy("127.0.0.1", port, RULES[way]) as proxy:
        scenario = "websocket_scenarios.each_message_once"
        losses, *_ = run(python, scenario, proxy.port, "random" if ca else mask, ca)
    # What is resent decides how many cuts it takes.
    assert int(losses.removeprefix("@losses ")) >= 4


# Nothing that a client does once it is online allocates: see proof.py.


@spread("name", on_device.operations("websocket_broker"), version=(4, 5))
def test_nothing_is_allocated(name: str, version: int, plain: tuple[int, None]) -> None:
    peer = Broker("127.0.0.1", plain[0])
    assert on_device.proof("websocket_broker", name, peer, version=version) == on_device.NOTHING


@pytest.mark.parametrize("name", on_device.operations("websocket_scripted"))
def test_nothing_is_allocated_with_a_scripted_peer(name: str) -> None:
    assert on_device.proof("websocket_scripted", name) == on_device.NOTHING
