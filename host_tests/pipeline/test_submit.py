"""`spark-submit` starts the jobs, with a master of its own: as docs/spark.md says it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import flatmq_tools
from flatmq_tools.pipeline import java
from pipeline.landed import count, land_boards

DOCS = Path(__file__).parents[2] / "docs" / "spark.md"
MESSAGES = 300


@pytest.mark.proof
def test_spark_submit_runs_the_jobs(tmp_path: Path) -> None:
    section = DOCS.read_text(encoding="utf-8").partition("## Use `spark-submit`")[2]
    script, command = re.findall(r"```(?:python|sh)\n(.*?)```", section, re.DOTALL)[:2]
    (tmp_path / "submit.py").write_text(script)
    land_boards(tmp_path / "out", MESSAGES, tmp_path / "log")
    command = command.replace("spark://master:7077", "local[1]")
    program, *arguments = shlex.split(command)
    root = Path(flatmq_tools.__file__).parents[2]
    done = subprocess.run(
        [
            str(Path(pyspark.__file__).with_name("bin") / program),
            "--driver-java-options", "-XX:TieredStopAtLevel=1",
            *arguments, "--seconds", "1",
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(java.home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(root / "lib"), str(root / "tools")]),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert count(tmp_path / "out" / "measurements") == MESSAGES
    assert count(tmp_path / "out" / "devices") == 200
