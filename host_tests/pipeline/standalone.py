"""A Spark cluster on this machine whose workers do not see a folder that the driver sees."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from flatmq_tools.pipeline import java
from pipeline.mqtt import until

_HOST = "127.0.0.1"
_CLASS = "org.apache.spark.deploy"


def can_hide() -> bool:
    """Return whether a process may have a mount namespace of its own here."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@contextlib.contextmanager
def cluster(folder: Path, hidden: Path | None = None) -> Iterator[str]:
    """The URL of a master with one worker of one core, which write their logs to `folder`.

    hidden  a folder that is an empty one of its own for the worker and its executors
    """
    home = java.home()
    command = [
        str(home / "bin" / "java"), "-XX:TieredStopAtLevel=1", "-Xmx256m",
        "-cp", str(Path(pyspark.__file__).with_name("jars") / "*"),
    ]  # fmt: skip
    env = {
        **os.environ,
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SCALA_VERSION": "2.13",  # as the scripts of Spark say it
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with contextlib.ExitStack() as stack:

        def start(name: str, arguments: list[str]) -> Path:
            log = folder / f"{name}.txt"
            with log.open("wb") as out:
                program = subprocess.Popen(
                    arguments, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=folder
                )
            stack.callback(program.wait)
            stack.callback(program.kill)
            return log

        def said(log: Path, pattern: str) -> str:
            found: list[str] = []
            until(lambda: found.extend(re.findall(pattern, log.read_text())) or found)
            return found[0]

        options = ["--host", _HOST, "--port", "0", "--webui-port", "0"]
        master = start("master", [*command, f"{_CLASS}.master.Master", *options])
        url = said(master, r"Starting Spark master at (spark://\S+)")
        worker = [
            *command, f"{_CLASS}.worker.Worker", *options, "--cores", "1", "--memory", "1g",
            "--work-dir", str(folder / "work"), url,
        ]  # fmt: skip
        if hidden is not None and can_hide():
            script = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            worker = ["unshare", "-m", "sh", "-c", script, str(hidden), *worker]
        log = start("worker", worker)
        said(log, "(Successfully registered) with master")
        yield url


def unshared(folder: Path) -> tuple[Path, Path]:
    """A folder for tables, as a driver that works in `folder` names it, and where that is.

    Where no mount namespace may be made, the name is one that means another folder to each process
    that works in a folder of its own, as the executors do.
    """
    there = folder / "out"
    there.mkdir()
    return (there if can_hide() else Path("/proc/self/cwd/out")), there
