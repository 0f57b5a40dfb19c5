"""Measure, print, and write the table of `python -m flatmq_rigs pipeline-bench`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from flatmq_tools.pipeline.processes import environment

from ... import results
from . import chains
from .figures import BenchError, Figure

NAME = "pipeline"  # of the section
TIMES = 2.0  # the goal: times the rows per CPU second of paho-mqtt, in what receives
SHARE = 0.85  # the goal: of the rows per CPU second of MQTT 3.1.1, those of MQTT 5
ROWS = 50_000  # the goal: rows per second from the broker to Parquet
HEAD = ("pipeline", "rows/s", "CPU per row, us", *chains.PARTS)


def measure(
    count: int, rounds: int, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> dict[str, list[Figure]]:
    """The figures of each pipeline, one a round; a session of Spark a round."""
    found: dict[str, list[Figure]] = {
        name: [] for name in chains.CHAINS if not only or name in only
    }
    names = list(found)
    for i in range(rounds if names else 0):
        # Each is the first now and then: a session gets faster as it goes.
        order = [*names[i % len(names) :], *names[: i % len(names)]]
        for name, chain in _measured(order, count, say, f"round {i + 1} of {rounds}"):
            if chain.messages != count:
                raise BenchError(f"{name}: {chain.messages} of {count} messages")
            found[name].append(chain)
    return found


def _measured(
    names: Sequence[str], count: int, say: Callable[[str], None], which: str
) -> Iterable[tuple[str, Figure]]:
    say(f"{which}: Spark starts")
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as hides:
        # The extra "pipeline" does not bring pandas, which pyarrow imports where it is installed.
        Path(hides, "pandas.py").write_text("raise ImportError")
        usual = environment()
        process = subprocess.Popen(
            [sys.executable, "-m", chains.__name__, str(count), *names],
            env={**usual, "PYTHONPATH": os.pathsep.join([hides, usual["PYTHONPATH"]])},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = json.loads(line)
                if isinstance(said, str):
                    say(f"{which}: {chains.LABELS[said]}")
                else:
                    yield said[0], Figure(*said[1:])
            process.wait()
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
        if process.returncode:
            errors.seek(0)
            raise BenchError(f"{', '.join(names)}: {errors.read().strip()[-2000:]}")


def each_us(figures: Sequence[Figure], part: str | None = None) -> float:
    """Return the CPU time per row, in us: the median of the rounds."""
    return statistics.median(figure.each_us(part) for figure in figures)


def rows(found: Mapping[str, Sequence[Figure]]) -> list[list[str]]:
    """A row of the table for each pipeline."""
    return [
        [name, results.number(rate(of)), *(f"{each_us(of, p):.2f}" for p in (None, *chains.PARTS))]
        for name, of in found.items()
    ]


def rate(figures: Sequence[Figure]) -> float:
    """Return the rows per second: the median of the rounds."""
    return statistics.median(figure.rate for figure in figures)


def times(found: Mapping[str, Sequence[Figure]], one: str, other: str) -> float:
    """Return the rows per CPU second of what receives in `one`, as a multiple of `other`.

    It is the median over the rounds.
    """
    pairs = zip(found[other], found[one], strict=True)
    return statistics.median(
        theirs.each_us("receiver") / ours.each_us("receiver") for theirs, ours in pairs
    )


def main(count: int, rounds: int, only: Sequence[str], path: Path | None) -> int:
    """Measure, print, and write the section if a path is given. Raises BenchError."""
    console = Console()
    with console.status("") as status:
        found = measure(count, rounds, only, status.update)
    text = section(found, count, rounds)
    console.print(Markdown(text))
    if path is not None:
        results.write(path, NAME, text)
    return 0


def _goals(found: Mapping[str, Sequence[Figure]]) -> Iterable[str]:
    """Yield a sentence for each goal."""
    if "source" in found and "source-paho" in found:
        ratio = times(found, "source", "source-paho")
        text = (
            f"In the receiver flatmq takes {ratio:.1f} times the rows per CPU second of paho-mqtt"
        )
        yield f"{text} (the goal: {TIMES:g})."
    # From a broker, its pace decides how much comes with a read, and varies more than this.
    if "memory" in found and "memory-5" in found:
        share = times(found, "memory-5", "memory")
        text = (
            f"In MQTT 5 the ingest takes {share:.2f} times the rows per CPU second of MQTT 3.1.1"
        )
        yield f"{text} (the goal: {SHARE:g})."
    if "source" in found:
        text = f"From the broker to Spark's Parquet {results.number(rate(found['source']))} rows/s"
        yield f"{text}, the start of the query included (the goal: {ROWS:,})."


def section(found: Mapping[str, Sequence[Figure]], count: int, rounds: int) -> str:
    """The part of docs/results.md on the pipeline's speed."""
    legend = "\n".join(f"- {name}: {chains.LABELS[name]}" for name in found)
    return "\n\n".join(
        [
            "## The pipeline: speed",
            f"`python -m flatmq_rigs pipeline-bench`, on {os.cpu_count()} cores: {count:,} "
            "messages of about 110 bytes at QoS 1 that mosquitto holds. Medians of "
            f"{rounds} rounds.",
            results.table(HEAD, rows(found)),
            legend,
            *_goals(found),
        ]
    )
