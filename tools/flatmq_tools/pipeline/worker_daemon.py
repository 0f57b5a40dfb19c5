"""Spark's daemon of Python workers, without tracebacks when the Java process ends first.

Spark starts it with `python -m`, by the configuration `spark.python.daemon.module`. A worker that
is about to answer finds its connection closed if the run ends within a batch. Spark has given the
batch up by then, so the traceback would only alarm the reader of a log.
"""

import sys
import traceback

from pyspark import daemon

_all = traceback.print_exc


def print_exc(*arguments: object, **options: object) -> None:
    """Print the traceback of the current exception, unless a connection was closed."""
    if not isinstance(sys.exc_info()[1], ConnectionError):
        _all(*arguments, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    traceback.print_exc = print_exc
    daemon.manager()
