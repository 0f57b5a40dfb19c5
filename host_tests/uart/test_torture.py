"""A board is reset at every byte of a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

import sizes
from uart.simulation import DOWN, UP, World

PAYLOADS = [bytes(range(0, 64)), b"print me\r\n\x03\x04", bytes(range(200, 256)), b""]


def session(world: World) -> None:
    """Publish at QoS 1 and 2 while the broker publishes, and look at what arrived."""
    client, broker = world.client, world.broker
    world.until("subscription", lambda: client.connected)
    sent = [(b"out", qos, payload) for payload in PAYLOADS for qos in (1, 2)]
    todo = list(sent)
    for payload in PAYLOADS[:2]:
        broker.send(payload)

    def over() -> bool:
        while todo and client.publish(todo[0][0], todo[0][2], todo[0][1]) is not None:
            todo.pop(0)
        return not todo and not client.pending and len(world.got) >= 2 and not broker.outgoing

    world.until("the end", over)
    assert world.got == PAYLOADS[:2]
    assert [m for m in broker.taken if m[1] == 2] == [m for m in sent if m[1] == 2]
    firsts = list(dict.fromkeys(m for m in broker.taken if m[1] == 1))
    assert firsts == [m for m in sent if m[1] == 1]
    assert world.line.fullest <= 256


def places(direction: str) -> list[int]:
    """Return the bytes at which a session is ended, of those that pass when nothing ends it."""
    passed = 0

    def count(data: bytes) -> bytes:
        nonlocal passed
        passed += len(data)
        return data

    with World() as world:
        world.line.harm[direction] = count
        session(world)
        assert world.client.stats.losses == world.link.errors == world.line.bridge.bad == 0
        assert world.line.printed == b""
    assert passed > 300
    return sizes.sample(range(passed), 40)


class Stopped(Exception):
    """The board has been reset."""


class Once:
    """Has something happen once, after `at` bytes of what passes were handed on."""

    def __init__(self, at: int, hand_on: Callable[[bytes], object], then: Callable[[], None]):
        self._left = at
        self._hand_on = hand_on
        self._then = then
        self.done = False

    def __call__(self, data: bytes) -> bytes:
        if self.done or len(data) <= self._left:
            self._left -= len(data)
            return data
        self.done = True
        self._hand_on(data[: self._left])
        self._then()
        return data[self._left :]


def _after(world: World, direction: str, at: int, then: Callable[[], None]) -> None:
    line = world.line
    if direction == UP:
        line.harm[UP] = Once(at, lambda data: line.bridge.receive(data, line.seconds), then)
    else:
        line.harm[DOWN] = Once(at, line.ring.extend, then)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_reset_of_the_board_at_every_byte(direction: str) -> None:
    """The next life has a connection of its own, and nothing of the former one gets into it."""

    def stop() -> None:
        raise Stopped

    for at in places(direction):
        with World() as world:
            _after(world, direction, at, stop)
            with contextlib.suppress(Stopped):
                session(world)
            world.line.harm = {UP: bytes, DOWN: bytes}
            taken = len(world.broker.taken)
            world.got.clear()
            world.boot()
            world.client.publish(b"out", b"second life", 2)
            world.until("the end", lambda w=world: not w.client.pending and not w.broker.outgoing)
            assert world.broker.taken[taken:] == [(b"out", 2, b"second life")]
            assert set(world.got) <= set(PAYLOADS[:2])
            assert world.client.stats.losses == 0
