"""`flatmq pipeline ...`: each of its commands is a module of its own; this is their front."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.group()
def pipeline() -> None:
    """From the broker to tables and a picture, on Spark."""


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise click.BadParameter(f"{one}: NAME=VALUE is wanted")
    return dict(one.split("=", 1) for one in given)


@pipeline.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--broker",
    default="127.0.0.1:1883",
    show_default=True,
    envvar="BROKER",
    help="host:port, or tcp://... or ssl://...",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    default=("dev/#",),
    show_default=True,
    help="Topic filter; repeatable.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help='Option of format("mqtt"), such as username; repeatable.',
)
@click.option(
    "--landed",
    metavar="FOLDER",
    help="Take the files that `flatmq pipeline ingest` lands, not the broker.",
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    type=click.Choice(["raw", "measurements", "windows", "health"]),
    help="Do this one; repeatable. All, if not given.",
)
@click.option("--delta", is_flag=True, help="Write Delta tables too.")
@click.option(
    "--trigger",
    type=click.FloatRange(0.0),
    default=1.0,
    show_default=True,
    help="Seconds between two batches.",
)
@click.option(
    "--health-every",
    type=click.FloatRange(1.0),
    default=60.0,
    show_default=True,
    help="Seconds between two snapshots of the health tables.",
)
@click.option("--seconds", type=click.FloatRange(0.0), help="End after that; else with Ctrl-C.")
@click.option(
    "--master",
    default="local[2]",
    show_default=True,
    envvar="SPARK_MASTER",
    help='As for spark-submit; "" under spark-submit itself.',
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="Configuration of Spark; repeatable.",
)
def run(
    out: Path,
    broker: str,
    filters: tuple[str, ...],
    options: dict[str, str],
    landed: str | None,
    jobs: tuple[str, ...],
    delta: bool,
    trigger: float,
    health_every: float,
    seconds: float | None,
    master: str,
    conf: dict[str, str],
) -> None:
    """Make tables in the folder OUT of what a broker sends: each message once, also after kills.

    A password is best told as FLATMQ_PASSWORD in the environment.
    """
    import json

    from ..cli import _exit
    from . import run as command
    from .java import JavaError

    source = {"brokerUrl": broker, "filters": json.dumps(filters), **options}
    if "FLATMQ_PASSWORD" in os.environ:
        source.setdefault("password", os.environ["FLATMQ_PASSWORD"])
    plan = command.Plan(out, source, landed, jobs or command.JOBS, delta, trigger, health_every)
    _exit(
        lambda: command.main(plan, master=master or None, conf=conf, seconds=seconds),
        command.RunError,
        JavaError,
    )
