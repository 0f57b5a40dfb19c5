"""A TLS stream that is broken anywhere costs a connection, and nothing else."""

import pytest

from conftest import PYTHONS
from tls import broken_streams
from tls.secure_broker import SecureBroker

STREAMS = 48
SEED = 5


def test_broken_streams_end_and_nothing_is_lost(secure: SecureBroker) -> None:
    counts = broken_streams.break_all(secure, STREAMS, SEED)
    for python in PYTHONS:
        assert counts[python]["streams"] >= STREAMS // 2
        assert counts[python]["changed"] > STREAMS // 4, counts


@pytest.mark.proof
def test_the_same_streams_without_tls_are_found(secure: SecureBroker) -> None:
    """A message that was changed, or an error that the other side's MQTT made of it."""
    with pytest.raises(broken_streams.Broken, match=r"@wrong|protocol"):
        broken_streams.break_one(secure, broken_streams.PLAIN, 200, "plain")
