"""Fetch umqtt.simple, with which flatmq is compared, into a cache folder."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from flatmq_tools.errors import ToolError

UMQTT_SIMPLE = "micropython-umqtt.simple==1.3.4"


class PeerError(ToolError):
    """It could not be fetched; the text says why."""


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


def umqtt_simple(build: Path) -> Path:
    """Return the source of umqtt.simple, fetched if this version is not there yet.

    pip refuses to install its archive, which has no setup.py. Several processes may fetch it at
    once. Raises PeerError.
    """
    target = build / "peers" / UMQTT_SIMPLE / "umqtt" / "simple.py"
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    python = sys.executable
    index = index_options(_run(python, "-m", "pip", "config", "list"))
    with tempfile.TemporaryDirectory(dir=build / "peers") as folder:
        _run(
            python, "-m", "unearth", UMQTT_SIMPLE, *index, "--no-binary", "--download", folder
        )  # fmt: skip
        [archive] = Path(folder).iterdir()
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.endswith("/umqtt/simple.py"):
                    source = members.extractfile(member)
                    assert source is not None
                    made = Path(folder, "simple.py")
                    made.write_bytes(source.read())
                    os.replace(made, target)
                    return target
    raise PeerError(f"{archive.name} has no umqtt/simple.py")
