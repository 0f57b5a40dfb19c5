"""`spark-submit` starts the jobs, with a master of its own: as docs/spark.md says it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

import flatmq_tools
from flatmq_tools.pipeline import java
from pipeline.landed import land_boards

DOCS = Path(__file__).parents[2] / "docs" / "spark.md"
MESSAGES = 300


@pytest.mark.proof
def test_spark_submit_runs_the_jobs(tmp_path: Path) -> None:
    told = DOCS.read_text(encoding="utf-8").partition("### With `spark-submit`")[2]
    script, command = re.findall(r"```(?:python|sh)\n(.*?)```", told, re.DOTALL)[:2]
    (tmp_path / "submit.py").write_text(script)
    landed = land_boards(tmp_path, MESSAGES)
    command = command.replace("spark://master:7077", "local[1]")
    command = command.replace("/srv/landed", str(landed))
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
    for table in ("raw", "measurements"):
        assert ds.dataset(tmp_path / "out" / table, format="parquet").count_rows() == MESSAGES
    assert ds.dataset(tmp_path / "out" / "devices", format="parquet").count_rows() == 200
