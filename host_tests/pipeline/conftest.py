"""The SparkSession that the tests of the pipeline share, as starting it takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sizes

if sys.version_info < (3, 11):
    collect_ignore_glob = ["*"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flatmq_tools.broker import Broker
    from flatmq_tools.pipeline import log


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
    """Prepare for every Java of these tests, which share no address and no folder with others."""
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
def there() -> Iterator[Broker]:
    """A broker that drops nothing, and that tests share: each has topics of its own."""
    from pipeline.mqtt import broker

    with broker() as running:
        yield running


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    from flatmq_tools.pipeline.log import Writer

    with Writer(tmp_path / "log") as made:
        yield made


_SHARED = pytest.StashKey["SparkSession"]()


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from flatmq_tools.pipeline.session import session as made

    one = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    session = made(name="flatmq tests", **FEW_ROWS, **one)
    request.session.stash[_SHARED] = session
    yield session
    del request.session.stash[_SHARED]
    session.stop()


@pytest.fixture(autouse=True)
def nobody_stops_the_shared_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that does, instead of all after it, and stop queries that one left."""
    yield
    if _SHARED in request.session.stash:
        try:
            # An active session belongs to a thread, so the session itself is asked.
            assert request.session.stash[_SHARED].sparkContext.applicationId
            for query in request.session.stash[_SHARED].streams.active:
                query.stop()
        except AttributeError:
            pytest.fail("this test stopped the session that all share")
