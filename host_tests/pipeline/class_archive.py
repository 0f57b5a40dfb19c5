"""An archive of Spark's classes, with which Java starts in half the time.

Java maps such a file into memory instead of reading and checking ten thousand classes (class data
sharing, JEP 350). To make one takes as much CPU as eight Javas need to start without: that pays
where everything is tested. It runs this file with `spark-submit`, and Java writes down the
classes that it has loaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from flatmq_tools.pipeline import java, spark_home
from flatmq_tools.pipeline.session import session

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "spark"
_TIMEOUT = 300  # s until Java is ended that makes an archive
# An archive that does not fit is passed over, in silence.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# Compiling for a long life takes longer than most of these programs live. For the small heap of a
# test, several threads that collect garbage cost more than one. With the small space for compiled
# code that goes with this level, Java drops code and compiles it again.
_SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:-UsePerfData"
)
_OPTIONS = "SPARK_SUBMIT_OPTS"


def options(make: bool) -> str:
    """Return the options with which Java starts sooner, for the variable SPARK_SUBMIT_OPTS.

    `make` has the archive made if there is none. A Java that cannot make one starts without.
    """
    home = spark_home.home() or Path(pyspark.__file__).parent
    runs_on = java.home()
    fits = f"{home} {pyspark.__version__} {runs_on.resolve()} {(runs_on / 'release').read_text()}"
    fits += _SHORT_LIVED
    mark = hashlib.sha256(fits.encode()).hexdigest()[:16]
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = FOLDER / f"{mark}.jsa"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests may begin at once
        if make and not archive.exists():
            _make(archive, home, runs_on)
    if not archive.exists():
        return _SHORT_LIVED
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={shlex.quote(str(archive))} {_SILENT}"


def _make(archive: Path, home: Path, runs_on: Path) -> None:
    draft = archive.with_suffix(".draft")
    option = f"-XX:ArchiveClassesAtExit={shlex.quote(str(draft))}"
    subprocess.run(
        [str(home / "bin" / "spark-submit"), str(Path(__file__).resolve())],
        env={
            **os.environ,
            "JAVA_HOME": str(runs_on),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tools")]),
            _OPTIONS: f"{_SHORT_LIVED} {option} {_SILENT}",
        },
        capture_output=True,
        timeout=_TIMEOUT,
        check=True,
    )
    if draft.exists():
        draft.rename(archive)


def _load(folder: Path) -> None:
    """Have Spark load the classes that the pipeline uses: tables, a stream, state, Python."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    spark = session()
    table = str(folder / "table")
    rows = spark.range(10).select(
        "id", F.col("id").cast("string").alias("text"), F.current_timestamp().alias("at"),
        F.current_date().alias("day"),
    )  # fmt: skip
    rows.write.partitionBy("day").parquet(table)
    double = F.udf(lambda n: 2 * n, "long")

    def add(batch: DataFrame, _number: int) -> None:
        batch.write.mode("append").parquet(str(folder / "counts"))

    stream = spark.readStream.schema(spark.read.parquet(table).schema).parquet(table)
    query = (
        stream.withColumn("double", double("id"))
        .withWatermark("at", "1 hour")
        .groupBy(F.window("at", "1 minute"), "text")
        .agg(F.sum("double"), F.count("*"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(add)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.read.parquet(str(folder / "counts")).orderBy("text").collect()
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        _load(Path(made))
