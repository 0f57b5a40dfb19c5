"""Fetch the clients that flatmq is compared with into a cache folder."""

from __future__ import annotations

import ast
import contextlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

UMQTT_SIMPLE = "micropython-umqtt.simple==1.3.4"
_STAMP = ".fetched"  # the file that names the versions which are there


class PeerError(RuntimeError):
    """A client could not be fetched; the text says which and why."""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise PeerError(f"`{' '.join(command[2:5])}` failed: {' '.join(last)}")
    return done.stdout


def index_options(pip_config: str) -> list[str]:
    """The options that make `unearth` use the index that `pip config list` shows."""
    settings: dict[str, list[str]] = {}
    for line in pip_config.splitlines():
        name, separator, value = line.partition("=")
        if separator:
            key = name.rpartition(".")[2].replace("_", "-")
            settings.setdefault(key, []).extend(str(ast.literal_eval(value)).split())
    if "index-url" not in settings:
        return []
    options = []
    for url in [settings["index-url"][-1], *settings.get("extra-index-url", [])]:
        options += ["--index-url", url]
    for host in settings.get("trusted-host", []):
        options += ["--trusted-host", host]
    return options


def _unpack(sdist: Path, into: Path) -> None:
    """Only the modules: everything that ends in .py inside a package of the archive."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            inside = PurePosixPath(member.name).parts[1:]
            if not (member.isfile() and len(inside) == 2 and inside[1].endswith(".py")):
                continue
            source = archive.extractfile(member)
            assert source is not None
            target = into / PurePosixPath(inside[0]).name / PurePosixPath(inside[1]).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read())


def _fetch_sdist(requirement: str, into: Path) -> None:
    """Fetch an archive without a setup.py, which pip refuses to install."""
    python = sys.executable
    config = _run(python, "-m", "pip", "config", "list")
    download = into / "download"
    _run(
        python, "-m", "unearth", requirement,
        *index_options(config), "--no-binary", "--download", str(download),
    )  # fmt: skip
    archives = list(download.iterdir())
    if len(archives) != 1:
        raise PeerError(f"expected one archive of {requirement}, got {archives}")
    _unpack(archives[0], into)
    shutil.rmtree(download)


def _fetch_wheel(requirement: str, into: Path) -> None:
    _run(
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
        "--target", str(into), requirement,
    )  # fmt: skip


def fetch(cache: Path, name: str, sdists: tuple[str, ...], wheels: tuple[str, ...]) -> Path:
    """Return a folder with the modules of one client, fetched if the cache lacks these versions.

    Several processes may fetch the same client at once.
    """
    folder = cache / name
    versions = "\n".join(sdists + wheels)
    if _holds(folder, versions):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as made:
        fetched = Path(made, name)
        fetched.mkdir()
        for requirement in sdists:
            _fetch_sdist(requirement, fetched)
        for requirement in wheels:
            _fetch_wheel(requirement, fetched)
        (fetched / _STAMP).write_text(versions)
        if not _holds(folder, versions):
            with contextlib.suppress(OSError):  # nothing there, or another process was faster
                folder.rename(Path(made, "old"))
            with contextlib.suppress(OSError):
                fetched.rename(folder)
    if not _holds(folder, versions):
        raise PeerError(f"{folder} could not be replaced")
    return folder


def umqtt_simple(build: Path) -> Path:
    """Return the source of umqtt.simple, fetched if need be. Raises PeerError."""
    return fetch(build / "peers", "umqtt_simple", (UMQTT_SIMPLE,), ()) / "umqtt" / "simple.py"


def _holds(folder: Path, versions: str) -> bool:
    stamp = folder / _STAMP
    return stamp.is_file() and stamp.read_text() == versions
