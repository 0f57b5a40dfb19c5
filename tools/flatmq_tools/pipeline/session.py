"""A SparkSession that finds Java, this interpreter, and `format("mqtt")`."""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from pathlib import Path
from subprocess import Popen

from pyspark import java_gateway
from pyspark.sql import SparkSession

import flatmq

from . import java, spark_home

_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    # A query that is stopped within a batch has an error of Python, at which Spark looks with a
    # regular expression: Java's recur with each character.
    _JAVA_OPTIONS: "-Xss16m",
    # A worker and Java shake hands when it starts: by default within 15 s, also on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.python.daemon.module": "flatmq_tools.pipeline.worker_daemon",
}
# Nothing listens on, or is looked for at, another address than loopback.
_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOGGING = Path(__file__).with_name("log4j2.properties")
# On one machine a batch is small, and each shuffle partition costs a task and files of state.
_SHUFFLE = "spark.sql.shuffle.partitions"
_SPARKS = "200"  # if nobody says
_LOCAL = {
    _SHUFFLE: "2",
    "spark.ui.enabled": "false",
    # The one that Spark would take starts 14 programs for each batch of a query, to look for
    # symbolic links.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


class SessionError(RuntimeError):
    """No session of this kind can run the pipeline; the text says what to do."""


def session(
    master: str | None = "local[2]", name: str = "flatmq", **conf: str | int | bool
) -> SparkSession:
    """The running SparkSession, or a new one.

    master  as for spark-submit; None leaves it to spark-submit. On another than "local" the
            executors need flatmq installed too
    conf    more configuration, such as **{"spark.sql.shuffle.partitions": 8}

    Raises SessionError for Spark Connect, whose client has no JVM: the sinks need that of the
    driver.

    Its Python is this interpreter and its Java that of `java.home`. With a `master` on this
    machine its ports are on loopback alone, unless `conf` says otherwise. Raises JavaError if
    there is no Java.
    """
    _refuse_connect(master)
    os.environ["JAVA_HOME"] = str(java.home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(_path())
    # A signal to the whole process group, as of a shell, does not end Java within a batch. PySpark
    # offers no other way.
    java_gateway.Popen = partial(  # type: ignore[assignment, misc]
        Popen, start_new_session=True
    )
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        known = defaults(master, os.cpu_count() or 1)
        faster = spark_home.home() if master.startswith("local") else None
        if faster is not None:
            chosen = os.environ.setdefault("SPARK_HOME", str(faster))
            if chosen == str(faster) and "SPARK_CONF_DIR" not in os.environ:
                known[_JAVA_OPTIONS] += f" -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        if "spark.driver.host" in known:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config(map={**known})
    spark = builder.config(map={**conf}).getOrCreate()
    context = spark.sparkContext
    untold = not context.getConf().contains(_SHUFFLE) and spark.conf.get(_SHUFFLE) == _SPARKS
    if (context.master or "").startswith("local") and untold:
        spark.conf.set(_SHUFFLE, _LOCAL[_SHUFFLE])
    return spark


def defaults(master: str, cores: int) -> dict[str, str]:
    """Return the default configuration for a master.

    With executors on this machine, which has `cores` cores, a shuffle has as many partitions,
    and at least 2; elsewhere it has what Spark gives it.
    """
    known = dict(_CONF)
    if re.match(r"local\b|spark://(localhost|127\.0\.0\.1)\b", master):
        known |= _LOOPBACK
        known |= _LOCAL if master.startswith("local") else {_SHUFFLE: str(max(2, cores))}
    return known


def _refuse_connect(master: str | None) -> None:
    remote = os.environ.get("SPARK_REMOTE", "")
    named = f"SPARK_REMOTE={remote}" if remote else f"master {master}"
    if remote or (master or "").startswith("sc://"):
        raise SessionError(
            f"{named}: Spark Connect cannot run the pipeline, because a batch is committed by the "
            "driver's JVM, which a client of Connect does not have. Name the cluster itself, such "
            "as spark://HOST:7077, or start it there with spark-submit"
        )


def _path() -> list[str]:
    """Return PYTHONPATH for the workers.

    It is where this process has flatmq, its tools and the source from, also in a checkout that
    is not installed.
    """
    own = [str(Path(__file__).parents[2]), str(Path(flatmq.__file__).parents[1])]
    there = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys([*own, *filter(None, there)]))
