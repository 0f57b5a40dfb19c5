"""The key that signs the updates of these tests."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from flatmq_tools.ota import keys
from ota.board import Board
from unit.fake_link import Clock


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public half lies beside it."""
    file = tmp_path_factory.mktemp("key") / "fleet"
    keys.generate(file)
    return file


@pytest.fixture(scope="session")
def other_key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that no board knows."""
    file = tmp_path_factory.mktemp("key") / "other"
    keys.generate(file)
    return file


@pytest.fixture(scope="session")
def key(key_file: Path) -> RSAPrivateKey:
    return keys.private(key_file)


@pytest.fixture
def board(tmp_path: Path, key: RSAPrivateKey, clock: Clock) -> Board:
    made = Board(tmp_path, key)
    made.clock = clock
    return made
