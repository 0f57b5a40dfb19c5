"""The clients that the bench compares with are fetched once, also by several processes at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flatmq_rigs.bench import peers

Meanwhile = Callable[[], object]


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[Meanwhile]:
    """Calls to make, one each time, while pip installs a module; pip is faked."""
    meanwhile: list[Meanwhile] = []

    def run(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--target") + 1])
        if meanwhile:
            meanwhile.pop()()
        with (folder / "client.py").open("x") as module:
            module.write(command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return meanwhile


@pytest.mark.usefixtures("pip")
def test_a_cache_with_another_version_is_replaced(tmp_path: Path) -> None:
    old = tmp_path / "client"
    old.mkdir(parents=True)
    (old / ".fetched").write_text("client==0")
    (old / "left_over.py").write_text("")
    assert peers.fetch(tmp_path, "client", (), ("client==1",)) == old
    assert (old / "client.py").read_text() == "client==1"
    assert not (old / "left_over.py").exists()
    before = (old / "client.py").stat()
    assert peers.fetch(tmp_path, "client", (), ("client==1",)) == old
    assert (old / "client.py").stat() == before
    assert list(tmp_path.iterdir()) == [old]


def test_what_another_process_fetched_meanwhile_stays(
    tmp_path: Path, pip: list[Meanwhile]
) -> None:
    seen = []

    def elsewhere() -> None:
        folder = peers.fetch(tmp_path, "client", (), ("client==1",))
        seen.append((folder / "client.py").stat())

    pip.append(elsewhere)
    folder = peers.fetch(tmp_path, "client", (), ("client==1",))
    assert seen == [(folder / "client.py").stat()]
    assert list(tmp_path.iterdir()) == [folder]
