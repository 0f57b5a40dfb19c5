"""Packets before the client is online, or about authentication, that break a rule or seem to."""

from __future__ import annotations

import pytest

from unit.fake_link import Clock
from v5 import build5
from v5.clients5 import Bench5
from v5.properties5 import Id

AUTH = [(Id.AUTHENTICATION_METHOD, b"m")]


def _authenticating(clock: Clock) -> Bench5:
    return Bench5(clock, auth=(b"m", lambda data: b"answer"))


@pytest.mark.parametrize("code", [None, 0])
def test_success_of_authenticating_again_in_its_short_form(clock: Clock, code: int | None) -> None:
    bench = _authenticating(clock).accepted(*AUTH)
    bench.client.authenticate()
    bench.client.flush()
    assert bench.names() == ["AUTH"]
    short = b"\xf0\x00" if code is None else b"\xf0\x01\x00"
    bench.feed(short)
    assert bench.client.connected
    assert bench.names() == []


def test_auth_does_not_cut_the_connect_that_it_cannot_answer(clock: Clock) -> None:
    bench = _authenticating(clock)
    bench.greet_in_part(10)
    bench.feed(build5.ending("AUTH", 0x18, AUTH))
    assert bench.client.error.kind == "protocol"
    assert bench.client.error.detail == "packet 0xf0: AUTH before CONNECT has left"
    assert len(bench.stream.written) == 10
