"""A release has its parts, the same bytes each time, and one version."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import flatmq
from conftest import ROOT
from flatmq_rigs import release
from flatmq_tools.errors import ToolError
from test_package import files

VERSION = flatmq.__version__
CHANGELOG = """\
# Changes

## 0.4.0 - unreleased

Next.

## 0.3.0 - 2027-01-31

New.

## 0.2.10 - 2026-12-01

## 0.2.1 - 2026-11-30

### Fixed
- Old.
"""


def _checkout(folder: Path) -> Path:
    """Copy the files that git knows into a checkout of its own, with other times of its files."""
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode)
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    when = {"GIT_COMMITTER_DATE": f"@{release.epoch()} +0000"}
    commit = [*git, "commit", "-q", "-m", "all", "--no-verify"]
    subprocess.run(commit, check=True, env={**os.environ, **when})
    return folder


def test_another_checkout_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = _checkout(tmp_path / "first"), _checkout(tmp_path / "again")
    (again / "build").mkdir()
    (again / "build" / "image.uf2").write_bytes(b"not part of a release")
    (again / "boards" / "settings.json").write_text('{"wifi": {"password": "s3cret"}}')
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "flatmq-0.0.1.tar.gz").write_bytes(b"old")
    release.build(tmp_path / "one", "Notes.\n", first)
    release.build(tmp_path / "two", "Notes.\n", again)
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    assert {name: one[name] == two.get(name) for name in one} == dict.fromkeys(two, True)
    assert {f"flatmq-{VERSION}-py3-none-any.whl", f"flatmq-{VERSION}.tar.gz"} < set(one)
    notes = one["NOTES.md"].decode()
    assert notes.endswith("\n\nNotes.\n")
    named = re.findall(r"`(flatmq-[^`]+|mpy\d/\w+\.json)`", notes)
    assert len(named) == 3
    assert set(named) <= set(one)
    assert any(name.endswith("/package.json") for name in one)
    assert one["results/size.csv"] == (ROOT / "docs" / "results" / "size.csv").read_bytes()
    with tarfile.open(tmp_path / "one" / f"flatmq-{VERSION}.tar.gz") as sdist:
        assert f"flatmq-{VERSION}/tools/flatmq_rigs/release.py" in sdist.getnames()
    # Spark looks for format("mqtt") in the last of them.
    wheel = tmp_path / "one" / f"flatmq-{VERSION}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"flatmq/py.typed", "flatmq/port.pyi", "pyspark_mqtt.py"} <= names
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import flatmq, flatmq_tools;"
        "print(flatmq.__file__, flatmq_tools.__file__)"
    )
    python = [sys.executable, "-I", "-c", code]
    found = subprocess.run(python, capture_output=True, text=True, check=True).stdout.split()
    assert found == [f"{wheel}/flatmq/__init__.py", f"{wheel}/flatmq_tools/__init__.py"]


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "0.4.0") == "Next.\n"
    assert release.notes(CHANGELOG, "0.3.0") == "New.\n"
    assert release.notes(CHANGELOG, "0.2.1") == "### Fixed\n- Old.\n"
    with pytest.raises(ToolError, match=r"needs a section '## 0.2 - YYYY-MM-DD'"):
        release.notes(CHANGELOG, "0.2")
    with pytest.raises(ToolError, match=r"'## 0.2.10' of CHANGELOG.md must not be em"):
        release.notes(CHANGELOG, "0.2.10")


def test_there_is_no_release_outside_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="a checkout with a commit"):
        release.epoch(tmp_path)


def test_the_version_is_written_once() -> None:
    """Generated files aside, whose own test compares them with it."""
    for name in ("pyproject.toml", "Makefile", "firmware/manifest.py"):
        assert VERSION not in (ROOT / name).read_text(encoding="utf-8"), name
