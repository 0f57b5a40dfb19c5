"""Measure, print, and write the tables of `python -m flatmq_rigs pipeline-bench`."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from flatmq_tools import broker

from ... import results
from ..processes import environment
from . import chains, receivers
from .figures import BenchError, Figure
from .messages import MOSQUITTO, PATIENCE, load

NAME = "pipeline"  # of the section
TIMES = 2.0  # the goal: times the rows per CPU second of paho-mqtt, in the ingest
SHARE = 0.85  # the goal: of the rows per CPU second of MQTT 3.1.1, those of MQTT 5
ROWS = 50_000  # the goal: rows per second from the broker to Parquet
PARTS = (*receivers.RECEIVERS, *chains.CHAINS)
"""What may be measured."""

_MODULE = "flatmq_rigs.pipeline.bench"


def _receiver(name: str, server: broker.Broker | None, count: int) -> Figure:
    folder = Path(tempfile.mkdtemp(prefix="flatmq-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        host, port = (server.host, server.port) if server else ("", 0)
        command = [f"{_MODULE}.receivers", name, host, str(port), str(folder), str(count)]
        done = subprocess.run(
            [sys.executable, "-m", *command],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name}: not done after {PATIENCE} s") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise BenchError(f"{name}: {done.stderr.strip()}")
    return Figure(*json.loads(done.stdout))


def measure(
    count: int, rounds: int, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> dict[str, list[Figure]]:
    """The figures of each receiver, one a round."""
    found: dict[str, list[Figure]] = {
        name: [] for name in receivers.RECEIVERS if not only or name in only
    }
    for i in range(rounds):
        for name, figures in found.items():
            say(f"round {i + 1} of {rounds}: {receivers.LABELS[name]}")
            if name in receivers.FROM_BROKER:
                # A new one each time: none is slowed down by what another one left.
                with broker.mosquitto(extra=MOSQUITTO) as server:
                    load(server, count)
                    figures.append(_receiver(name, server, count))
            else:
                figures.append(_receiver(name, None, count))
            _check(name, figures[-1].messages, count)
    return found


def measure_chains(
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
        say(f"round {i + 1} of {rounds}: Spark starts")
        for name, chain in _chains(order, count, lambda text, i=i: say(  # type: ignore[misc]
            f"round {i + 1} of {rounds}: {text}"
        )):  # fmt: skip
            _check(name, chain.messages, count)
            found[name].append(chain)
    return found


def _chains(
    names: Sequence[str], count: int, say: Callable[[str], None]
) -> Iterable[tuple[str, Figure]]:
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{_MODULE}.chains", str(count), *names],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                told = json.loads(line)
                if isinstance(told, str):
                    say(chains.LABELS[told])
                else:
                    yield told[0], Figure(*told[1:])
            process.wait()
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
        if process.returncode:
            errors.seek(0)
            raise BenchError(f"{', '.join(names)}: {errors.read().strip()[-2000:]}")


def _check(name: str, messages: int, count: int) -> None:
    if messages != count:
        raise BenchError(f"{name}: {messages} of {count} messages")


HEAD = ("part", "rows/s", "CPU per row, us", "rows per CPU s")
CHAIN_HEAD = ("pipeline", "rows/s", "CPU per row, us", *chains.PARTS)


def each_us(figures: Sequence[Figure], part: str | None = None) -> float:
    """Return the CPU time per row, in us: the median of the rounds."""
    return statistics.median(figure.each_us(part) for figure in figures)


def rows(found: Mapping[str, Sequence[Figure]]) -> list[list[str]]:
    """A row of the table for each receiver."""
    return [
        [name, results.number(rate(of)), f"{each_us(of):.2f}", results.number(1e6 / each_us(of))]
        for name, of in found.items()
    ]


def chain_rows(found: Mapping[str, Sequence[Figure]]) -> list[list[str]]:
    """A row of the table for each pipeline."""
    return [
        [name, results.number(rate(of)), *(f"{each_us(of, p):.2f}" for p in (None, *chains.PARTS))]
        for name, of in found.items()
    ]


def rate(figures: Sequence[Figure]) -> float:
    """Return the rows per second: the median of the rounds."""
    return statistics.median(figure.rate for figure in figures)


def times(
    found: Mapping[str, Sequence[Figure]], one: str = "flatmq", other: str = "paho"
) -> float:
    """Return the rows per CPU second of `one` as a multiple of those of `other`.

    It is the median over the rounds.
    """
    pairs = zip(found[other], found[one], strict=True)
    return statistics.median(theirs.each_us() / ours.each_us() for theirs, ours in pairs)


def main(count: int, rounds: int, only: Sequence[str], strict: bool, path: Path | None) -> int:
    """Measure, print, and write the section if a path is given.

    Raises BenchError, also when a target is missed and `strict` is set.
    """
    console = Console()
    with console.status("") as status:
        found = measure(count, rounds, only, status.update)
        ends = measure_chains(count, rounds, only, status.update)
    console.print(Markdown(section(found, ends, count, rounds)))
    if path is not None:
        results.write(path, NAME, section(found, ends, count, rounds))
    if strict and not all(met for met, _ in _told(found, ends)):
        raise BenchError("a goal is missed")
    return 0


def _told(
    found: Mapping[str, Sequence[Figure]], ends: Mapping[str, Sequence[Figure]]
) -> Iterable[tuple[bool, str]]:
    """Return for each target whether it is met, and a sentence about it."""
    if "flatmq" in found and "paho" in found:
        ratio = times(found)
        told = f"In the ingest flatmq takes {ratio:.1f} times the rows per CPU second of paho-mqtt"
        yield ratio >= TIMES, f"{told} (the goal: {TIMES:g})."
    # From a broker, its pace decides how much comes with a read, and varies more than this.
    if "memory" in found and "memory-5" in found:
        share = times(found, "memory-5", "memory")
        told = (
            f"In MQTT 5 the ingest takes {share:.2f} times the rows per CPU second of MQTT 3.1.1"
        )
        yield share >= SHARE, f"{told} (the goal: {SHARE:g})."
    if "source" in ends:
        rows_s = rate(ends["source"])
        told = f"From the broker to Spark's Parquet {results.number(rows_s)} rows/s"
        yield rows_s >= ROWS, f"{told}, the start of the query included (the goal: {ROWS:,})."


def section(
    found: Mapping[str, Sequence[Figure]],
    ends: Mapping[str, Sequence[Figure]],
    count: int,
    rounds: int,
) -> str:
    """The part of docs/results.md on the pipeline's speed."""
    parts = [
        "## The pipeline: speed",
        f"`python -m flatmq_rigs pipeline-bench`, on {os.cpu_count()} cores: {count:,} messages "
        f"of about 110 bytes at QoS 1 that mosquitto holds. Medians of {rounds} rounds.",
    ]
    if ends:
        parts += [
            "### From end to end",
            results.table(CHAIN_HEAD, chain_rows(ends)),
            _legend(chains.LABELS, ends),
        ]
    if found:
        parts += [
            "### The ingest alone",
            results.table(HEAD, rows(found)),
            _legend(receivers.LABELS, found),
        ]
    return "\n\n".join([*parts, *(text for _, text in _told(found, ends))])


def _legend(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return "\n".join(f"- {name}: {labels[name]}" for name in names)
