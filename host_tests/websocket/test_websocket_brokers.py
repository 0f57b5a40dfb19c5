"""Scenarios over WebSocket against mosquitto, on both interpreters, also through a bad network."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import pytest

import sizes
from conftest import PYTHONS
from device import on_device
from flatmq_rigs.links import Listening
from flatmq_rigs.proxy import Proxy, Rules, Way
from flatmq_tools.broker import Broker
from scenario_child import linked
from side_by_side import side_by_side

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
QUICK = "set_tcp_nodelay true"  # else answers wait 40 ms for an acknowledgement
# Where connections are cut: in the upgrade, in a header, in a payload.
RULES = {
    "up": lambda count: Rules(up=Way(limit=190 + 97 * count)) if count < CUTS else Rules(),
    "down": lambda count: Rules(down=Way(limit=20 + 83 * count)) if count < CUTS else Rules(),
    "over TLS": lambda count: Rules(Way(limit=300 * count)) if count < 8 else Rules(),
}
WAYS = [(way, mask) for mask in MASKS for way in ("up", "down")] + [("over TLS", "TLS")]


class Places(NamedTuple):
    """The ports of brokers for WebSockets, and the settings for the one with TLS."""

    plain: int
    secure: int
    tls: dict[str, str]


def scenario(at: Places, name: str, mask: str, python: str) -> None:
    linked(python, name, {}, port=at.plain, mask=mask)


def over_tls(at: Places, name: str, python: str) -> None:
    linked(python, name, at.tls, port=at.secure, mask="random")


def each_message_arrives_once_though_connections_are_cut(
    at: Places, way: str, mask: str, python: str
) -> None:
    port, tls = (at.secure, at.tls) if mask == "TLS" else (at.plain, {})
    with Proxy("127.0.0.1", port, RULES[way]) as proxy:
        name = "websocket_scenarios.each_message_once"
        heard = linked(python, name, tls, port=proxy.port, mask="random" if tls else mask)
    # What is resent decides how many cuts it takes.
    assert int(dict(heard[:1])["@losses"]) >= 4


def nothing_is_allocated(at: Places, name: str, version: int) -> None:
    """Once a client is online: see proof.py. All of them have the same identifier and topic."""
    with Listening("websocket", extra=QUICK) as own:
        peer = Broker("127.0.0.1", own.port)
        seen = on_device.proof("websocket_broker", name, peer, version=version)
    assert seen == on_device.NOTHING


CHECKS: dict[Callable[..., None], Iterable[tuple]] = {
    scenario: itertools.product(SCENARIOS, MASKS, PYTHONS),
    over_tls: itertools.product(OVER_TLS, PYTHONS),
    each_message_arrives_once_though_connections_are_cut: (
        (*way, python) for way in WAYS for python in PYTHONS
    ),
    nothing_is_allocated: itertools.product(on_device.operations("websocket_broker"), (4, 5)),
}
CASES = [
    (check, *case)
    for check, every in CHECKS.items()
    for case in sizes.one_each(every, lambda case: case[0])
]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[tuple, Future[None]]]:
    on_device.made()  # before the threads need it
    with (
        Listening("websocket", extra=QUICK) as plain,
        Listening("websocket+tls", extra=QUICK) as secure,
    ):
        at = Places(plain.port, secure.port, {"ca": str(secure.ca)})
        with side_by_side(
            request, test_with_a_broker, lambda case: case[0](at, *case[1:])
        ) as all_:
            yield all_


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join([case[0].__name__, *map(str, case[1:])])
)
def test_with_a_broker(case: tuple, runs: dict[tuple, Future[None]]) -> None:
    runs[case].result()


@pytest.mark.parametrize("name", on_device.operations("websocket_scripted"))
def test_nothing_is_allocated_with_a_scripted_peer(name: str) -> None:
    assert on_device.proof("websocket_scripted", name) == on_device.NOTHING
