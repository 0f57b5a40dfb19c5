"""Executors that do not share the folder of tables: nothing is committed, and a text says why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.landed import count, land_boards
from pipeline.typed_here import CLUSTER, apart

MESSAGES = 100


def _run(folder: Path, out: Path, master: str) -> subprocess.CompletedProcess[str]:
    """`flatmq pipeline run` of the table measurements, started in `folder`."""
    return subprocess.run(
        [
            sys.executable, "-m", "flatmq_tools.cli", "pipeline", "run", str(out),
            "--job", "measurements", "--master", master,
            "--seconds", "1", "--conf", "spark.executor.memory=512m",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        ],
        env={**apart(folder), "COLUMNS": "1000"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip


@pytest.mark.proof
def test_nothing_is_lost_on_a_second_machine(tmp_path: Path) -> None:
    """The name of the folder means another one to each process that works in another folder."""
    there = tmp_path / "out"
    there.mkdir()
    land_boards(there, MESSAGES, tmp_path / "log")
    done = _run(tmp_path, Path("/proc/self/cwd/out"), CLUSTER)
    assert done.returncode == 1, done.stderr
    said = done.stderr.rstrip().splitlines()[-1]
    assert "which do not share that folder: name a folder that the driver and all" in said
    # Nothing was committed, and nothing is gone.
    assert not count(there / "measurements")
    assert not list((there / "checkpoints" / "measurements" / "commits").glob("[0-9]*"))
    # The same run, where the folder is shared.
    done = _run(tmp_path, there, "local[1]")
    assert done.returncode == 0, done.stderr
    assert count(there / "measurements") == MESSAGES
