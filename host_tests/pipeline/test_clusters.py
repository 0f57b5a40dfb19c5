"""`flatmq pipeline run` with masters of its own: by spark-submit, and on other machines."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from conftest import ROOT, ran
from flatmq_tools.pipeline import java
from pipeline.messages import count, land_boards

MESSAGES = 300
CLUSTER = "local-cluster[1,1,1024]"
"""A master with an executor in a process of its own."""


def _ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command for a second in `folder`."""
    return ran(
        [*words, "--seconds", "1"], cwd=folder, timeout=240, env={
            **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "1000",
            "JAVA_HOME": str(java.home()), "PYSPARK_PYTHON": sys.executable,
            "XDG_CACHE_HOME": str(folder / "cache"),  # executors work in the home of Spark
            "SPARK_SCALA_VERSION": "2.13",  # as the scripts of Spark say it
        },
    )  # fmt: skip


@pytest.mark.proof
def test_spark_submit_runs_the_jobs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    section = page.partition("## Use `spark-submit`")[2]
    script, command = re.findall(r"```(?:python|sh)\n(.*?)```", section, re.DOTALL)[:2]
    (tmp_path / "submit.py").write_text(script)
    land_boards(tmp_path / "out", MESSAGES, tmp_path / "log")
    program, *words = shlex.split(command.replace("spark://master:7077", "local[1]"))
    program = str(Path(pyspark.__file__).with_name("bin") / program)
    done = _ran(tmp_path, program, "--driver-java-options", "-XX:TieredStopAtLevel=1", *words)
    assert done.returncode == 0, done.stderr
    assert count(tmp_path / "out" / "measurements") == MESSAGES
    assert count(tmp_path / "out" / "devices") == 200


@pytest.mark.proof
def test_nothing_is_lost_on_a_second_machine(tmp_path: Path) -> None:
    """The name of the folder means another one to each process that works in another folder."""
    there = tmp_path / "out"
    there.mkdir()
    land_boards(there, MESSAGES, tmp_path / "log")

    def run(out: Path, master: str) -> subprocess.CompletedProcess[str]:
        return _ran(
            tmp_path, sys.executable, "-m", "flatmq_tools.cli", "pipeline", "run", str(out),
            "--job", "measurements", "--master", master, "--conf", "spark.executor.memory=512m",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        )  # fmt: skip

    done = run(Path("/proc/self/cwd/out"), CLUSTER)
    assert done.returncode == 1, done.stderr
    said = done.stderr.rstrip().splitlines()[-1]
    assert "which do not share that folder: name a folder that the driver and all" in said
    # Nothing was committed, and nothing is gone.
    assert not count(there / "measurements")
    assert not list((there / "checkpoints" / "measurements" / "commits").glob("[0-9]*"))
    # The same run, where the folder is shared.
    done = run(there, "local[1]")
    assert done.returncode == 0, done.stderr
    assert count(there / "measurements") == MESSAGES
