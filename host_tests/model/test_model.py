"""A client keeps its promises whatever happens between it and a broker."""

from __future__ import annotations

import pytest

import sizes
from model import chance

SEEDS = range(20_000)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("seed", sizes.sample(SEEDS, 1000))
def test_a_life(seed: int, version: int) -> None:
    chance.lived(seed, version)
