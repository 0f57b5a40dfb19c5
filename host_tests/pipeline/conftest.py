"""The SparkSession that the tests of the pipeline share, as starting it takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sizes

if sys.version_info < (3, 11):
    collect_ignore_glob = ["*"]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.messages import Message


# Compiling for a long life takes longer than most of these Javas live. For the small heap of a
# test, several threads that collect garbage cost more than one. With the small space for compiled
# code that goes with this level, Java drops code and compiles it again.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m",
    "-XX:-UsePerfData",
)  # fmt: skip
# For so few rows, to compile a plan and to divide the work take longer than the work.
FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session", autouse=True)
def java(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prepare for every Java of these tests, those of commands included.

    It shares no address and no folder with those of other processes of tests.
    """
    mine = tmp_path_factory.mktemp("java")
    options = [
        *SHORT_LIVED, f"-Djava.io.tmpdir={mine}", f"-Dderby.system.home={mine}",
        f"-Dspark.sql.warehouse.dir={mine}/warehouse",
    ]  # fmt: skip
    if not sizes.whole():
        options += [f"-D{name}={value}" for name, value in FEW_ROWS.items()]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(options))
    os.environ["SPARK_LOCAL_DIRS"] = str(mine)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from flatmq_tools.pipeline.session import session as made

    one = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    session = made(name="flatmq tests", **FEW_ROWS, **one)
    yield session
    session.stop()


@pytest.fixture
def streamed(spark: SparkSession, tmp_path: Path) -> Callable[..., list[object]]:
    """Run a job on a stream, a batch for each list of messages; return the rows that come."""
    from pipeline.messages import SCHEMA, rows

    def run(job: Callable[[DataFrame], DataFrame], batches: list[list[Message]]) -> list[object]:
        files = tmp_path / "messages"
        offset = 0
        for n, batch in enumerate(batches):
            # One file each, older than the next: Spark takes them in the order of their times.
            spark.createDataFrame(rows(batch, offset), SCHEMA).coalesce(1).write.parquet(
                str(tmp_path / str(n))
            )
            (part,) = (tmp_path / str(n)).glob("*.parquet")
            files.mkdir(exist_ok=True)
            target = part.rename(files / f"{n}.parquet")
            os.utime(target, (1000 + n, 1000 + n))
            offset += len(batch)
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            job(stream.parquet(str(files)))
            .writeStream.format("memory")
            .queryName("found")
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(60)
            return list(spark.table("found").collect())
        finally:
            query.stop()

    return run
