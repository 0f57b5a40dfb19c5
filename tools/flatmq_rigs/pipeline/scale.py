"""The needs of a fleet of a given size: measured on this machine, then extrapolated.

The sizes are those of tables that `flatmq pipeline demo` made; the broker, the ingest and the
boards' connections are measured here, in one run of a fleet.
"""

from __future__ import annotations

import math
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
from deltalake import DeltaTable
from rich.console import Console

from flatmq_tools import broker as brokers
from flatmq_tools import fleet
from flatmq_tools.fleet import plan
from flatmq_tools.fleet.fleet import Fleet
from flatmq_tools.pipeline.processes import Command, CommandError
from flatmq_tools.pipeline.state import history
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.store import Place, Store

from .. import results
from .bench import past

NAME = "scale"
DEVICES = 1000
CROWD = 5000
SHARING = 200
INGESTS = 2
MANY = 100_000
SECONDS = 20.0
PATIENCE = 30.0  # seconds
FLEETS = (10_000, 1_000_000, 100_000_000)
# What the plan takes for given.
INTERVAL = 60  # s between two readings of a board: the default of the sketches
BUSY = 0.5  # of a core that a process is planned to use
CONNECTIONS = 100_000  # of a broker process
ROTATE = 10  # s between two commits of an ingest
FILE = 256 << 20  # bytes of a file after compaction


@dataclass
class Sizes:
    """The bytes per message of tables that exist."""

    messages: int
    raw: float
    measurements: float


@dataclass
class Costs:
    """The cost of a run at `rate` messages per second."""

    rate: float
    memory: float
    """Bytes of the broker, a connection."""
    broker: float
    """Seconds of CPU a message, in and out,"""
    ingest: float
    """and from the broker to the table raw."""
    boards: float
    connect: float
    """Seconds of the broker's CPU, a connection with its subscription and its status."""
    driver: float
    """Seconds of CPU a reading, for the state of MANY boards."""


@dataclass
class Tried:
    """The measurements of several parts, or many, at work together."""

    boards: int
    """At one broker, each with its own connection, of one process;"""
    rate: float
    """readings that they published a second,"""
    boards_cpu: float
    """in so much of a core."""
    sent: int
    """Readings of the boards whose messages ingests shared,"""
    shares: tuple[int, ...]
    """and how many of them each landed."""


def sizes(tables: Path) -> Sizes:
    """Return the sizes in the folder that a demo has filled.

    Raises CommandError when there is nothing in it.
    """
    raw = str(tables / "raw")
    messages = DeltaTable(raw).count() if DeltaTable.is_deltatable(raw) else 0
    if not messages:
        raise CommandError(f"no messages in {raw}: `flatmq pipeline demo {tables}` first")

    def size(name: str) -> float:
        actions = pa.table(DeltaTable(str(tables / name)).get_add_actions())
        return sum(actions["size_bytes"].to_pylist()) / messages

    return Sizes(messages, size("raw"), size("measurements"))


def _cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def _memory(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    return int(psutil.Process(pid).memory_info().rss)


class _Ingest(Command):
    """A process that lands what a broker has for it; ends with the block."""

    def __init__(
        self, target: brokers.Broker, folder: Path, name: str, filt: str, every: int
    ) -> None:
        self._out = folder / f"{name}-out"
        super().__init__(
            folder / f"{name}.txt", "ingest", target.address, self._out, "--log", folder / name,
            "--filter", filt, "--client-id", name, "--every", str(every),
        )  # fmt: skip
        try:
            self.until(lambda: "receiving from" in self.words(), PATIENCE)
        except CommandError:
            self.stop()
            raise

    def readings(self) -> int:
        """Return the number of boards' readings in the table that it writes."""
        raw = str(self._out / "raw")
        if not DeltaTable.is_deltatable(raw):
            return 0
        topics = DeltaTable(raw).to_pyarrow_table(columns=["topic"])["topic"].to_pylist()
        return sum(topic.endswith("/telemetry") for topic in topics)

    def close(self) -> None:
        """End the process, which lands what it has before it ends."""
        self.end(PATIENCE)


def _broker() -> brokers.Broker:
    return brokers.mosquitto(extra="max_queued_messages 0\nmax_inflight_messages 0")


def costs(devices: int = DEVICES, seconds: float = SECONDS) -> Costs:
    """Have a fleet publish once a second each through a mosquitto to an ingest."""
    with (
        tempfile.TemporaryDirectory(prefix="flatmq-scale-") as folder,
        _broker() as target,
        closing(_Ingest(target, Path(folder), "ingest", "dev/#", ROTATE)) as ingest,
    ):
        broker = target.pid
        assert broker is not None
        memory, cpu = _memory(broker), _cpu(broker)
        made = Fleet(target.host, target.port, fleet.Settings(devices, 1.0, seconds, 1))
        at: dict[str, tuple[float, float, int]] = {}

        def show(what: str, share: float) -> None:
            at.setdefault(what, (_cpu(broker), _cpu(ingest.pid), _memory(broker)))

        made.run(show)
        first, last = at["publishing"], at.get("closing", ())
        if not last:
            raise CommandError("the fleet ended too fast to be measured")
        readings = sum(boot.readings for boot in made.boots)
        return Costs(
            devices,
            (first[2] - memory) / devices,
            (last[0] - first[0]) / readings,
            (last[1] - first[1]) / readings,
            made.figures.run_cpu / readings,
            (first[0] - cpu) / devices,
            kept(MANY),
        )


def kept(boards: int) -> float:
    """Return the CPU of the driver, in seconds a reading, that the state of the boards takes.

    A batch has a reading of each, and is the third of a run.
    """
    fleet = past.Fleet(boards, round(time.time()) // 86_400 * 86_400 * history.SECOND)
    with tempfile.TemporaryDirectory(prefix="flatmq-scale-") as folder:
        with Store(Path(folder, "state.sqlite")) as store:
            state = State(store)
            for minute in range(3):
                packs = fleet.arrivals(minute, 1)
                begin = time.process_time()
                past.include(state, packs, Place(past.QUERY, minute, None))
        return (time.process_time() - begin) / len(packs.row)


def tried(
    crowd: int = CROWD, devices: int = SHARING, ingests: int = INGESTS, seconds: float = SECONDS
) -> Tried:
    """Have a crowd of boards publish to one mosquitto, and ingests share their messages.

    Raises CommandError unless all was acknowledged and each reading landed once.
    """
    with (
        tempfile.TemporaryDirectory(prefix="flatmq-scale-") as name,
        _broker() as target,
        ExitStack() as stack,
    ):
        many = Fleet(target.host, target.port, fleet.Settings(crowd, 1.0, seconds, 1, "crowd"))
        many.run()
        if not many.complete:
            raise CommandError(f"of {crowd:,} boards not all was acknowledged")
        each = [
            stack.enter_context(
                closing(_Ingest(target, Path(name), f"ingest-{n}", "$share/scale/dev/#", 1))
            )
            for n in range(1, ingests + 1)
        ]
        settings = fleet.Settings(devices, 1.0, seconds, 1, "sharing", plan.CALM)
        few = Fleet(target.host, target.port, settings)
        few.run()
        sent = sum(boot.published for boot in few.boots)
        end = time.monotonic() + PATIENCE
        while sum(shares := [ingest.readings() for ingest in each]) < sent:
            if time.monotonic() > end:
                break
            time.sleep(0.5)
    if sum(shares) != sent:
        raise CommandError(f"{sent:,} readings were shared, and {sum(shares):,} landed")
    taken = sum(boot.readings for boot in many.boots)
    return Tried(
        crowd, taken / many.figures.run, many.figures.run_cpu / many.figures.run, sent,
        tuple(shares),
    )  # fmt: skip


def text(size: Sizes, cost: Costs, more: Tried) -> str:
    """The measured figures, and what they make of fleets of three sizes, as Markdown."""
    landed = " and ".join(f"{share:,}" for share in more.shares)
    measured = results.table(
        ["measured", "", "how"],
        [
            ["broker, memory", f"{cost.memory / 1024:.1f} KiB a connection",
             f"mosquitto, {cost.rate:,.0f} boards"],
            ["broker, CPU", f"{cost.broker * 1e6:.0f} µs a message",
             "in and out, and both acknowledgements"],
            ["broker, CPU",
             f"{cost.connect * 1e6:.0f} µs a connection", "with its SUBSCRIBE and status"],
            ["ingest, CPU", f"{cost.ingest * 1e6:.0f} µs a message",
             f"at {cost.rate:,.0f} a second, where nothing comes in bulk"],
            ["Spark's driver, CPU", f"{cost.driver * 1e6:.0f} µs a reading",
             f"the state of {MANY:,} boards, each with a reading in a batch"],
            ["boards, CPU", f"{cost.boards * 1e6:.0f} µs a reading", "where they are simulated"],
            [f"{more.boards:,} boards at one broker", f"{more.rate:,.0f} readings a second",
             f"all acknowledged, with {more.boards_cpu:.0%} of a core for the boards"],
            [f"{len(more.shares)} ingests share one broker's messages", landed,
             f"of {more.sent:,} readings, each landed once"],
            ["raw", f"{size.raw:.0f} B a message", f"Delta, {size.messages:,} messages"],
            ["measurements", f"{size.measurements:.0f} B a message", "a value each"],
        ],
    )  # fmt: skip
    plans = [_plan(devices, size, cost) for devices in FLEETS]
    head = ["calculated", *(f"{devices:,} boards" for devices in FLEETS)]
    rows = [[name, *(each[name] for each in plans)] for name in plans[0]]
    return f"{measured}\n\n{results.table(head, rows)}"


def _plan(devices: int, size: Sizes, cost: Costs) -> dict[str, str]:
    rate = devices / INTERVAL
    cores = rate * cost.broker
    ingests = math.ceil(rate * cost.ingest / BUSY)
    day = rate * 86_400
    stored = day * (size.raw + size.measurements)
    return {
        "messages a second": f"{rate:,.0f}",
        "broker processes": f"{max(math.ceil(devices / CONNECTIONS), math.ceil(cores / BUSY)):,}",
        "their memory": _bytes(devices * cost.memory),
        "their cores in use": f"{cores:,.2f}",
        "ingest processes": f"{ingests:,}",
        "Spark's driver: cores": f"{rate * cost.driver:,.2f}",
        "commits of raw a day": f"{ingests * 86_400 // ROTATE:,}",
        "raw and measurements a day": _bytes(stored),
        "in files, after compaction": f"{math.ceil(stored / FILE):,}",
        "all connect again in an hour: broker cores": f"{devices * cost.connect / 3600:,.2f}",
    }


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n < 1000:
            return f"{n:,.0f} {unit}" if n >= 100 else f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:,.3g} PB"


def main(tables: Path, document: Path | None, console: Console | None = None) -> int:
    """Print the figures, and rewrite their section of `document`. Raises CommandError."""
    console = console or Console()
    section = text(sizes(tables), costs(), tried())
    console.print(section, markup=False, highlight=False, soft_wrap=True)
    if document is not None:
        results.write(document, NAME, section, inline=True)
    return 0
