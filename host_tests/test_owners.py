"""The check of which modules write which part of a client's state."""

import shutil
from pathlib import Path

import pytest

import flatmq
from flatmq_rigs import owners


def test_the_client_keeps_to_it() -> None:
    assert owners.wrong() == []


@pytest.mark.parametrize(("module", "line", "says"), [
    ("spool", "def f(client): client.end = 0", "must not write end of a client"),
    ("v5/auth", "def f(c):\n    c.kept += 1", "must not write kept of a client"),
    ("topic", "def f(c):\n    c.room, x = 1, 2", ""),
    ("hello", "def f(c):\n    c.room = c.inflight = 1", "several modules write it"),
])  # fmt: skip
def test_another_writer_is_found(module: str, line: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "flatmq"
    shutil.copytree(Path(flatmq.__file__).parent, folder)
    with (folder / f"{module}.py").open("a") as file:
        file.write(f"\n\n{line}\n")
    found = owners.wrong(folder)
    assert (bool(found), all(says in text for text in found)) == (bool(says), True)


def test_a_name_that_nothing_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(owners.WRITERS, "newer", {"engine"})
    assert owners.wrong() == ["newer: nothing writes it"]
