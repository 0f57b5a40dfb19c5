"""The tables of a run: their places and formats.

In a folder of this machine, or in one that it shares with all executors, tables are Parquet, with
Delta beside them if the user asks for it. At a URL, such as that of an object store, there is only
Delta. In both cases Iceberg tables can be written beside them.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from . import batches, delta, delta_batches, iceberg, sinks
from .by_day import ByDay

BY_DAY = {
    "raw": "timestamp", "dead_letters": "timestamp", "measurements": "received",
    "out_of_time": "received", "windows": "start",
}  # fmt: skip
"""The tables that grow, and the timestamp column whose day is the partition."""
_SHOWN = re.compile(r"\x1b\[\d*m|↳")  # how deltalake shows what caused an error


class TablesError(ValueError):
    """The tables cannot be in that place. The text says why, and what to do."""


class Tables:
    """The tables of a run.

    folder  of the Parquet tables; Delta tables are in its folder `delta`
    url     of the Delta tables, if there are only these
    delta   True: write Delta tables beside the Parquet tables
    namespace, catalog
            of Iceberg tables beside them, and the properties of their catalog. Without properties
            the catalog is a database in `folder`
    """

    def __init__(
        self, spark: SparkSession, folder: Path, url: str | None, delta: bool,
        namespace: str | None = None, catalog: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._spark = spark
        self._folder = folder
        self._url = url
        self.delta = url or (str(folder / "delta") if delta else None)
        """The folder or URL of the Delta tables, if there are any."""
        self._namespace = namespace
        self._catalog = catalog or iceberg.local_catalog(folder / "iceberg")
        self._sinks: dict[str, list[sinks.Sink]] = {}
        self.by_day: dict[str, ByDay] = {}
        """The Parquet tables that batches are written to."""

    def sinks(self, name: str) -> list[sinks.Sink]:
        """Return the sinks of a table; the same objects each time."""
        if name not in self._sinks:
            found: list[sinks.Sink] = []
            if self._url is None:
                found.append(self._parquet(name))
            if self.delta is not None:
                # A raw table of an earlier version lacks the properties of MQTT 5.
                found.append(
                    sinks.Delta(
                        self._of_delta(name), add_columns=name == "raw", by_day=BY_DAY.get(name)
                    )
                )
            if self._namespace is not None:
                table = f"{self._namespace}.{name}"
                more = name == "raw"
                found.append(iceberg.Iceberg(table, self._catalog, add_columns=more))
            self._sinks[name] = found
        return self._sinks[name]

    def _parquet(self, name: str) -> ByDay:
        return self.by_day.setdefault(name, ByDay(self._folder / name, BY_DAY[name]))

    def rows(self, name: str) -> int:
        """Return the number of rows written to a table since this was made."""
        return self.sinks(name)[0].rows

    def follow(self, name: str, schema: str | StructType) -> DataFrame:
        """Return the rows of a table, and those that are added later, as a stream."""
        if self._url is not None:
            return delta_batches.follow(self._spark, self.of(name), schema)
        return batches.follow(self._spark, self.of(name), schema)

    def of(self, name: str) -> str:
        """Return the folder or URL of a table that is followed."""
        return str(self._folder.absolute() / name) if self._url is None else self._of_delta(name)

    def _of_delta(self, name: str) -> str:
        return f"{(self.delta or '').rstrip('/')}/{name}"


def check(url: str) -> None:
    """Look for a table at a URL. Raises TablesError if the URL cannot be reached."""
    try:
        delta.files(f"{url.rstrip('/')}/raw").get_file_info("_delta_log/_last_checkpoint")
    except Exception as error:  # deltalake has errors of its own for each store
        lines = [_SHOWN.sub("", line).strip() for line in str(error).splitlines()]
        said = ": ".join(line for line in lines if line)
        raise TablesError(
            f"OUT must be a folder, or a URL that deltalake can reach, not {url}: {said}"
        ) from error
