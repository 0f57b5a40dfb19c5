"""How a session is configured where nobody says: for the master, and for this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatmq_tools.pipeline.session import defaults

SHUFFLE = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(
    ("master", "cores", "partitions"),
    [
        ("local[2]", 16, "2"),
        ("spark://127.0.0.1:7077", 16, "16"),
        ("spark://localhost:7077", 1, "2"),
        ("spark://master:7077", 16, None),
        ("yarn", 16, None),
    ],
)
def test_a_shuffle_has_as_many_partitions_as_this_machine_has_cores(
    master: str, cores: int, partitions: str | None
) -> None:
    assert defaults(master, cores).get(SHUFFLE) == partitions


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077"])
def test_nothing_on_this_machine_listens_beyond_it(master: str) -> None:
    assert defaults(master, 2)["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in defaults("spark://master:7077", 2)


_STOPPED = """
import sys, threading
from flatmq_tools.pipeline.session import session

spark = session("local[2]")
inside = threading.Event()

def batch(rows, number):
    inside.set()
    while True:
        rows.count()

for n in range(3):
    inside.clear()
    query = (
        spark.readStream.format("rate").load().writeStream.foreachBatch(batch)
        .option("checkpointLocation", f"{sys.argv[1]}/{n}").start()
    )
    assert inside.wait(120)
    query.stop()
spark.stop()
"""


def test_a_query_that_is_stopped_within_a_batch_ends_without_a_word(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Exception in thread" not in done.stderr
