"""Messages larger than the buffer, and properties that cannot be kept."""

from __future__ import annotations

import pytest

from unit.fake_link import Clock
from v5 import build5
from v5.clients5 import Bench5
from v5.properties5 import Id

RX_SIZE = 130
FITS = 40  # bytes of a User Property, with which the properties can be kept
MOST = 75  # and with which they cannot, but are all there with two reads


@pytest.mark.parametrize(("size", "kept"), [(FITS, True), (MOST, False)])
@pytest.mark.parametrize("first", [1, 42, RX_SIZE])
def test_properties_that_cannot_be_kept_have_their_message_skipped(
    clock: Clock, first: int, size: int, kept: bool
) -> None:
    """However it is read."""
    got: list[tuple[bytes, bytes | None]] = []
    bench = Bench5(clock, rx_size=RX_SIZE).accepted()
    bench.client.subscribe(b"#", lambda m: got.append((m.topic, m.properties.user(b"k"))), 1, True)
    topic, value = b"n" * 70, b"v" * size
    data = build5.publish(topic, bytes(500), 1, 7, [(Id.USER_PROPERTY, (b"k", value))])
    bench.feed(data[:first])
    for at in range(first, len(data), RX_SIZE):
        bench.feed(data[at : at + RX_SIZE])
    assert set(got) == ({(topic, value)} if kept else set())
    assert bench.client.stats.skipped == (not kept)
    assert bench.names() == ["SUBSCRIBE", "PUBACK"]
