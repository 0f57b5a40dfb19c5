"""Build a release: the wheel, the sdist, the packages for mip, the tables of results, notes.

The same commit gives the same bytes: timestamps are those of the last commit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import flatmq
from flatmq_tools.errors import ToolError

from . import packages

ROOT = Path(__file__).parents[2]
NOTES = "NOTES.md"
_INSTALL = """\
## Install

flatmq is in no package index. Of these files,

- a computer needs `flatmq-{version}-py3-none-any.whl`, the client and the command `flatmq`:
  `pip install flatmq-{version}-py3-none-any.whl`
- a board with MicroPython 1.26 or later needs the folder `{folder}`: copy `{folder}/flatmq` to
  `/lib/flatmq` on the board, or run `mpremote mip install {folder}/package.json`. The other JSON
  files have a part and the client, such as `{folder}/tls.json`. Before that, remove an older
  version with `mpremote rm -r :lib/flatmq`
- `flatmq-{version}.tar.gz` has the sources, the examples and the documentation: unpack it, and
  run `make tools`

## Changes

"""


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, which begins with a line such as "## 0.2.0 - 2026-11-20".

    Before the release, "unreleased" stands for the date, so that CI can build it.

    Raises ToolError if there is none, or it is empty.
    """
    head = rf"^## {re.escape(version)} - (?:\d{{4}}-\d\d-\d\d|unreleased)$"
    found = re.search(rf"{head}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ToolError(f"CHANGELOG.md needs a section '## {version} - YYYY-MM-DD'")
    if not found[1].strip():
        raise ToolError(f"the section '## {version}' of CHANGELOG.md must not be empty")
    return f"{found[1].strip()}\n"


def epoch(root: Path = ROOT) -> str:
    """Return the time of the last commit in seconds. Raises ToolError outside a checkout."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError("a release needs git and a checkout with a commit") from error
    return done.stdout.strip()


def build(into: Path, text: str, root: Path = ROOT) -> list[Path]:
    """Build the release of the checkout `root` into a folder and return its files.

    What was in the folder is removed. text: the changes, for the notes. Raises ToolError.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into.resolve())],
        cwd=root,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolError(f"hatchling failed: {done.stderr.strip()}")
    folder = packages.release(into).name
    shutil.copytree(root / "docs" / "results", into / "results")
    install = _INSTALL.format(version=flatmq.__version__, folder=folder)
    (into / NOTES).write_text(install + text, encoding="utf-8")
    return sorted(path for path in into.rglob("*") if path.is_file())


def main(into: Path) -> int:
    """Build the release of this version into a folder and print its parts; return 0."""
    changelog = ROOT / "CHANGELOG.md"
    if not changelog.is_file():
        raise ToolError(f"{changelog} is missing")
    text = notes(changelog.read_text(encoding="utf-8"), flatmq.__version__)
    build(into, text)
    for path in sorted(into.iterdir()):
        print(path)
    (folder,) = into.glob("mpy*")
    print(f"Install the client with: mpremote mip install {folder}/package.json")
    return 0
