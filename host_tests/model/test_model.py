"""A client keeps its promises whatever happens between it and a broker."""

import pytest

import sizes
from model import chance

SEEDS = range(20_000)
# Each showed a fault that no other seed of the sample did: an identifier of a forgotten session, a
# SUBSCRIBE before an older UNSUBSCRIBE, messages past PUBREC that were sent too early, a message
# in pieces without DUP, `drop` while a Receive Maximum holds others back, a message in pieces
# given up after `drop`, an UNSUBSCRIBE sent again after a newer SUBSCRIBE, and disconnect(),
# ping() or start() after a disconnect() that Ctrl-C ended, messages past PUBREC of a lost session
# at MQTT 5, a message in pieces after one that was dropped while it was being sent, `drop` taken
# for a proof, a dropped message that is acknowledged, and subscribe() or a message in pieces after
# DISCONNECT.
FOUND = (
    98, 220, 426, 562, 1761, 2748, 6504, 6820, 7129, 9532, 13023, 13646, 14901, 19804, 112875,
    114376, 118272, 202640, 204640, 205452, 212980, 410608,
)  # fmt: skip
CHOSEN = sorted({*sizes.sample(SEEDS, 1000), *FOUND})
PARTS = 10  # of the seeds; a test for each seed would take longer than its life


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("part", range(PARTS))
def test_lives(part: int, version: int) -> None:
    for seed in CHOSEN[part::PARTS]:
        chance.lived(seed, version)
