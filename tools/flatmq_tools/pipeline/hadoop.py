"""File systems as Hadoop knows them, through the JVM of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path or URL, and the path, as objects of the JVM."""
    jvm = spark._jvm  # noqa: SLF001 - PySpark offers no other way
    assert jvm is not None
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(configuration(spark)), found


def configuration(spark: SparkSession) -> Any:
    """Return the configuration of Hadoop, as an object of the JVM."""
    return spark._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark offers no other way


def local(files: Any, path: Any) -> Path | None:
    """The path on this machine; None if it is on another file system."""
    whole = files.makeQualified(path).toUri()
    return Path(whole.getPath()) if whole.getScheme() == "file" else None
