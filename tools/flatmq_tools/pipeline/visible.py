"""Rows that executors write as Parquet, held against the rows that the driver can read.

Spark counts a write as done when its tasks are. With executors on other machines that do not share
the folder, each writes to a disk of its own, and the driver commits a folder with nothing in it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from .hadoop import configuration, file_system

_ROWS = "rows"


class SinkError(RuntimeError):
    """A batch cannot be written; the text says why, and what to do."""


def write(rows: DataFrame, folder: str, table: str, by: str | None = None) -> dict[str, int]:
    """Write rows as Parquet to a folder that does not exist yet.

    Return how many rows there are in each of the folders in it that hold files; for `folder`
    itself the name is empty.

    table  the folder that the error names
    by     the column by which the rows are partitioned

    Rows are counted while they are written, and in the footers of the files as the driver reads
    them. SinkError when these differ.
    """
    seen = Observation()
    writer = counted(rows, seen).write
    (writer if by is None else writer.partitionBy(by)).parquet(folder)
    found = counts(rows.sparkSession, folder)
    check(rows, seen, sum(found.values()), table)
    return found


def counted(rows: DataFrame, seen: Observation) -> DataFrame:
    """The rows, which `seen` counts on their way into a table."""
    return rows.observe(seen, F.count(F.lit(1)).alias(_ROWS))


def check(rows: DataFrame, seen: Observation, found: int, table: str) -> None:
    """Raise SinkError if the driver can read another number of rows than was counted."""
    wanted = int(seen.get[_ROWS])
    if found != wanted:
        # A stage that ran twice counts its rows twice: count again before anybody is alarmed.
        wanted = rows.count()
    if found != wanted:
        raise SinkError(
            f"{table}: the driver can read {found:,} of the {wanted:,} rows that were written. "
            "Most likely the executors run on other machines, or in other containers, which do "
            "not share that folder: name a folder that the driver and all executors share (NFS, "
            "HDFS), or an object store with --delta, or run with --master 'local[*]'. Nothing was "
            "committed; the rows are written again by the next run"
        )


def counts(spark: SparkSession, folder: str) -> dict[str, int]:
    """Count the rows of the Parquet files in a folder and in the folders of its partitions.

    The counts are those of the footers, as the driver reads them.
    """
    jvm = spark._jvm  # noqa: SLF001 - PySpark offers no other way
    assert jvm is not None
    files, path = file_system(spark, folder)
    hadoop = jvm.org.apache.parquet.hadoop
    found: dict[str, int] = {}
    listed = files.listFiles(path, True)
    while listed.hasNext():
        status = listed.next()
        if status.getPath().getName().endswith(".parquet"):
            file = hadoop.util.HadoopInputFile.fromStatus(status, configuration(spark))
            reader = hadoop.ParquetFileReader.open(file)
            try:
                rows = int(reader.getRecordCount())
            finally:
                reader.close()
            parent = status.getPath().getParent()
            name = "" if parent.getName() == path.getName() else str(parent.getName())
            found[name] = found.get(name, 0) + rows
    return found
