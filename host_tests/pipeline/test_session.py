"""The default configuration of a session, for the master and for this machine."""

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from conftest import ran
from flatmq_tools.pipeline import spark_home, worker_daemon
from flatmq_tools.pipeline.session import defaults
from pipeline.runs import said


@pytest.mark.parametrize(
    ("master", "cores", "partitions", "address"),
    [
        ("local[2]", 16, "2", "127.0.0.1"),
        ("spark://127.0.0.1:7077", 16, "16", "127.0.0.1"),
        ("spark://localhost:7077", 1, "2", "127.0.0.1"),
        ("spark://master:7077", 16, None, None),
        ("yarn", 16, None, None),
    ],
)
def test_a_shuffle_and_the_driver_of_a_master_on_this_machine(
    master: str, cores: int, partitions: str | None, address: str | None
) -> None:
    """As many partitions as cores; and nothing listens beyond the machine."""
    found = defaults(master, cores)
    assert found.get("spark.sql.shuffle.partitions") == partitions
    assert found.get("spark.driver.bindAddress") == address


def test_the_home_of_spark_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all that is installed except what Spark would copy, and nothing is left beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    installed = Path(pyspark.__file__).parent
    for _ in range(2):
        made = spark_home.home()
        assert made is not None and list(made.parent.iterdir()) == [made]
        assert {p.name for p in made.iterdir()} == {p.name for p in installed.iterdir()}
        python = {p.name for p in (installed / "python").iterdir()} - {"lib"}
        assert {p.name for p in (made / "python").iterdir()} == python
        assert (made / "jars").samefile(installed / "jars")


_OF_OURS = """
import os, signal, sys, threading
from flatmq_tools.pipeline.session import session

spark = session("local[2]")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.killpg(0, signal.SIGTERM)
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
_OF_SOMEBODY = """
from pyspark.sql import SparkSession
from flatmq_tools.pipeline.session import session

name = "spark.sql.shuffle.partitions"
spark = SparkSession.builder.master("local[2]").getOrCreate()
print("of Spark", spark.conf.get(name))
print("of ours", session(None).conf.get(name))
spark.conf.set(name, 7)
print("of the user", session(None).conf.get(name))
spark.stop()
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("script", "printed"),
    [(_OF_OURS, ""), (_OF_SOMEBODY, "of Spark 200\nof ours 2\nof the user 7\n")],
    ids=["ours", "somebody's"],
)
def test_a_session_says_nothing_and_keeps_what_was_set(
    script: str, printed: str, tmp_path: Path
) -> None:
    """Also if a query is stopped within a batch, and if its process group gets a signal."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, tmp_path]
    done = ran(command, env=environment, timeout=240, start_new_session=True)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    if script == _OF_OURS:
        by_java = "WARNING: Using incubator modules: jdk.incubator.vector"
        assert set(done.stderr.splitlines()) <= {by_java}


def test_a_worker_imports_a_compiled_pyspark(spark: SparkSession) -> None:
    """Not the one in pyspark.zip, which takes three times as long."""
    import pyspark
    from pyspark.sql import functions as F

    found = F.udf(lambda _: __import__("pyspark").__file__, "string", useArrow=False)
    assert spark.range(1).select(found("id")).first()[0] == pyspark.__file__


def test_spark_connect_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")
    status, text = said("run", tmp_path / "out")
    reason = "SPARK_REMOTE=sc://127.0.0.1:15002: Spark Connect cannot run the pipeline"
    assert status == 1 and reason in text


@pytest.mark.parametrize(("error", "is_shown"), [(BrokenPipeError(), False), (KeyError(), True)])
def test_a_worker_whose_java_has_ended_says_nothing(
    error: Exception, is_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except Exception:
        worker_daemon.print_exc()
    assert ("Traceback" in capsys.readouterr().err) == is_shown
