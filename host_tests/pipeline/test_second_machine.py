"""Executors that do not share the folder of tables: nothing is committed, and a text says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

from flatmq_tools.pipeline import java
from pipeline.landed import land_boards

MESSAGES = 100
# One executor of one core, in a process that a worker of Spark starts in a folder of its own. So
# this name means another folder to it.
CLUSTER, OUT = "local-cluster[1,1,512]", Path("/proc/self/cwd/out")


def _run(folder: Path, out: Path, landed: Path, master: str) -> subprocess.CompletedProcess[str]:
    """`flatmq pipeline run` of the table raw, started in `folder`."""
    return subprocess.run(
        [
            sys.executable, "-m", "flatmq_tools.cli", "pipeline", "run", str(out),
            "--landed", str(landed), "--job", "raw", "--clean", "--master", master,
            "--seconds", "1", "--conf", "spark.executor.memory=512m",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        ],
        env={
            **os.environ,
            "JAVA_HOME": str(java.home()),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",  # as the scripts of Spark say it
            "PYTHONPATH": os.pathsep.join(sys.path),
            "COLUMNS": "1000",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip


@pytest.mark.proof
def test_nothing_is_lost_on_a_second_machine(tmp_path: Path) -> None:
    landed = land_boards(tmp_path, MESSAGES)
    there = tmp_path / "out"
    there.mkdir()
    done = _run(tmp_path, OUT, landed, CLUSTER)
    assert done.returncode == 1, done.stderr
    said = done.stderr.rstrip().splitlines()[-1]
    assert f"{OUT}/raw: the driver can read 0 of the {MESSAGES} rows that were written" in said
    assert "do not share that folder" in said and "Nothing was committed" in said
    # Nothing was committed, and nothing is gone.
    assert not list((there / "raw").glob("day=*/batch=*"))
    assert not list((there / "checkpoints" / "raw" / "commits").glob("[0-9]*"))
    assert ds.dataset(landed, format="parquet").count_rows() == MESSAGES
    # The same run, where the folder is shared.
    done = _run(tmp_path, there, landed, "local[1]")
    assert done.returncode == 0, done.stderr
    assert ds.dataset(there / "raw", format="parquet").count_rows() == MESSAGES
