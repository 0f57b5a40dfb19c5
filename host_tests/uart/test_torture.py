"""A session on a line that does harm at every byte: in this process, with a clock of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

import sizes
from uart.simulation import DOWN, UP, World

PAYLOADS = [bytes(range(0, 64)), b"print me\r\n\x03\x04", bytes(range(200, 256)), b""]
TEXT = b"Traceback (most recent call last):\r\n  caf\xc3\xa9\r\n"


class Struck:
    """Harm that is done once, at byte `at` of what passes."""

    def __init__(self, way: str, at: int) -> None:
        self.way = way
        self.at = at
        self.passed = 0
        self.done = False
        self._silent = False

    def __call__(self, data: bytes) -> bytes:
        if self._silent:
            return b""
        at = self.at - self.passed
        self.passed += len(data)
        if self.done or not 0 <= at < len(data):
            return data
        self.done = True
        head, byte, tail = data[:at], data[at], data[at + 1 :]
        match self.way:
            case "lose a byte":
                return head + tail
            case "flip a bit":
                return head + bytes((byte ^ 1 << at % 8,)) + tail
            case "print":
                return head + TEXT + data[at:]
            case "tear":  # until `mend`
                self._silent = True
                return head
        raise AssertionError(self.way)

    def mend(self) -> None:
        self._silent = False


WAYS = ["lose a byte", "flip a bit", "print", "tear"]


def session(world: World, harm: Struck | None = None) -> None:
    """Publish at QoS 1 and 2 while the broker publishes, and look at what arrived."""
    client, broker = world.client, world.broker
    world.until("subscription", lambda: client.connected or bool(harm and harm.done))
    sent = [(b"out", qos, payload) for payload in PAYLOADS for qos in (1, 2)]
    todo = list(sent)
    for payload in PAYLOADS[:2]:
        broker.send(payload)

    def over() -> bool:
        if harm and harm.done and world.line.now > 20_000:
            harm.mend()
        while todo and client.publish(todo[0][0], todo[0][2], todo[0][1]) is not None:
            todo.pop(0)
        return not todo and not client.pending and len(world.got) >= 2 and not broker.outgoing

    world.until("the end", over)
    assert world.got == PAYLOADS[:2]
    assert [m for m in broker.taken if m[1] == 2] == [m for m in sent if m[1] == 2]
    firsts = list(dict.fromkeys(m for m in broker.taken if m[1] == 1))
    assert firsts == [m for m in sent if m[1] == 1]
    assert world.line.fullest <= 256


def test_a_session_without_harm() -> None:
    with World() as world:
        session(world)
        assert world.client.stats.losses == 0
        assert world.line.printed == b""
        assert world.link.errors == world.line.bridge.bad == 0


def places(direction: str) -> list[int]:
    """Return the bytes at which a session is harmed, of those that pass when nothing harms it."""
    harm = Struck("none", 1 << 30)
    with World() as world:
        world.line.harm[direction] = harm
        session(world)
    assert harm.passed > 300
    return sizes.sample(range(harm.passed), 40)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", [UP, DOWN])
def test_harm_at_every_byte(direction: str, way: str) -> None:
    for at in places(direction):
        harm = Struck(way, at)
        with World() as world:
            world.line.harm[direction] = harm
            session(world, harm)


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
def test_another_bridge_at_every_byte(direction: str) -> None:
    for at in places(direction):
        with World() as world:
            _after(world, direction, at, world.line.restart)
            session(world)


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
