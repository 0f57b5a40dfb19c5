"""A test that what boards send arrives in the tables, and that faults are found there.

A broker, a fleet of simulated boards, boards in a real MicroPython, devices of other makers, the
ingest, Spark's jobs and the report, each as a user starts it; at the end the tables are held
against the truth.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from rich import box
from rich.console import Console
from rich.table import Table

from .. import broker as brokers
from .. import fleet, folders, interpreter
from ..bytecode import compiled
from ..fleet import compare, plan, truth
from ..fleet.fleet import Fleet
from ..plain import PlainConsole
from .other_devices import OtherDevices
from .processes import Command, row_count

SHARED = folders.find("boards") / "shared"
HOST = folders.find("boards") / "host"
HEAP_KB = 128
START = 180.0  # seconds that the ingest, and Spark, may take to start
END = 300.0  # and to work off what is there
LINE_EVERY = 2.0
LAND_EVERY = 2
QUIET = 8.0  # seconds without a new message after which nothing more is expected
SHOWN = 10  # differences
# Often enough that each shows in half a minute.
TROUBLES = plan.Troubles(
    lost=0.01, duplicated=0.01, reordered=0.005, drop_outs=0.5, reboots=0.3, silent=0.03,
    clocks=0.03,
)  # fmt: skip


class DemoError(RuntimeError):
    """The demo cannot run; the text says why."""


@dataclass
class Landed:
    """The number of rows in the tables for the boards of this run."""

    messages: int = 0
    """Readings as they arrived, copies too."""
    readings: int = 0
    """Rows of measurements, of the one value that each reading has."""
    others: int = 0
    """Rows of measurements of the devices of other makers."""
    dead: int = 0
    seen: dict[compare.Key, compare.Seen] = field(default_factory=dict)
    """By the health table."""
    silent: set[str] = field(default_factory=set)


@dataclass
class Demo:
    """A run whose tables go to `out`."""

    out: Path
    devices: int = 200
    real: int = 1
    ingests: int = 1
    """Several share the messages: the broker must know $share."""
    seconds: float = 30.0
    seed: int = 1
    user: str | None = None
    console: Console = field(default_factory=PlainConsole)
    troubles: plan.Troubles = TROUBLES

    def __post_init__(self) -> None:
        self.prefix = f"demo-{os.getpid():x}-{int(time.time()):x}"
        self._children: list[Command] = []
        # The embedded broker mixes the filters of a group up: several ingests have one filter.
        self._others = OtherDevices(self.prefix, self.seed) if self.ingests == 1 else None

    def run(self, target: brokers.Broker) -> int:
        """0 when the tables agree with the truth. Raises DemoError, CommandError, ToolError."""
        try:
            boots, ended = self._live(target)
            truth.write(self.out / "truth.jsonl", boots)
            status, line = self._verdict(boots, self._landed(), ended)
            self._say("making the report ...")
            report = "report", self.out, "--tables", self.out, *self._mappings
            self._start("report", *report).wait(END)
        finally:
            for child in reversed(self._children):
                child.stop()
        self._say(f"tables, report and the words of each part: {self.out}")
        self.console.print(line, style="bold", soft_wrap=True)
        return status

    # The parts

    @property
    def _mappings(self) -> list[str]:
        """Return the options for the devices of other makers."""
        names = self._others.mappings if self._others else []
        return [word for name in names for word in ("--mapping", name)]

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def _start(self, name: str, *arguments: object, **options: Any) -> Command:
        """A command, whose output goes to a file.

        It has a session of its own: Ctrl-C goes to this process, which then ends the others in
        order.
        """
        log = self.out / f"{name}.log"
        child = Command(log, *arguments, start_new_session=True, **options)
        self._children.append(child)
        return child

    def _live(self, target: brokers.Broker) -> tuple[list[truth.Boot], float]:
        """Have everything run; return what the boards did, and when the last of them ended."""
        out = self.out
        login = ["--user", self.user] if self.user else []
        self._say(f"the {target.kind} broker at {target.address}")
        share = f"$share/{self.prefix}/" if self.ingests > 1 else ""
        filters = self._others.filters if self._others else []
        more = [word for filt in filters for word in ("--filter", filt)]
        ingests = [
            self._start(
                f"ingest-{n}", "ingest", target.address, out,
                "--log", out / f"wait-{n}", "--client-id", f"{self.prefix}-ingest-{n}",
                "--filter", f"{share}dev/#", *more, "--every", LAND_EVERY, *login,
            )
            for n in range(1, self.ingests + 1)
        ]  # fmt: skip
        self._say("starting the ingest, and Spark ...")
        run = "run", out, "--health-every", 15, *self._mappings
        jobs = self._start("jobs", *run)
        for ingest in ingests:
            ingest.until(partial(_receives, ingest), START)
        jobs.until((out / "checkpoints" / "measurements").exists, START)
        with self._boards(target) as real:
            made = Fleet(
                target.host, target.port,
                fleet.Settings(
                    self.devices, 1.0, self.seconds, self.seed, f"{self.prefix}-sim",
                    self.troubles, self.user, os.environ.get(fleet.PASSWORD),
                ),
            )  # fmt: skip
            shown = [0.0]

            def show(what: str, share: float) -> None:
                if time.monotonic() - shown[0] > LINE_EVERY:
                    shown[0] = time.monotonic()
                    self._say(
                        f"{what:<10} {share:4.0%}  {made.online:,} online  {made.taken:,} readings"
                        f"  {row_count(out / 'raw'):,} messages in raw"
                    )
                    for child in self._children:
                        if child not in real:
                            child.check()

            if self._others is not None:
                password = os.environ.get(fleet.PASSWORD)
                self._others.start(target.host, target.port, self.user, password)
            made.run(show)
            ended = time.time()
            boots = made.boots + [self._boot_of(board, name) for board, name in real.items()]
        if not made.complete:
            self._say("the fleet: not all that was published was acknowledged")
        self._say("working off what is there ...")
        total = truth.summary(boots)
        others = self._others.stop().messages if self._others else 0
        self._await(total.published + total.duplicated + others)
        for ingest in ingests:
            ingest.end(END)
        jobs.end(END)
        # A run that is asked to end leaves to the next one what takes longer than 20 s.
        self._start("jobs-rest", *run, "--seconds", 0).wait(END)
        return boots, ended

    def _await(self, sent: int) -> None:
        """Wait until the ingests have landed `sent` messages, or land nothing new.

        What the broker has not handed on yet would stay in its session.
        """
        seen = 0
        patience = time.monotonic() + QUIET
        while time.monotonic() < patience:
            if (now := row_count(self.out / "raw")) != seen:
                seen, patience = now, time.monotonic() + QUIET
                topics = (str(row["topic"]) for row in self._rows("raw", "topic"))
                if sum(map(self._is_sent, topics)) >= sent:
                    return
            time.sleep(0.5)

    def _rows(self, name: str, *columns: str) -> list[dict[str, object]]:
        table = str(self.out / name)
        if not DeltaTable.is_deltatable(table):
            return []
        return list(DeltaTable(table).to_pyarrow_table(columns=list(columns)).to_pylist())

    def _is_mine(self, topic: str) -> bool:
        """Return whether the topic is that of a reading of these boards."""
        return topic.startswith(f"dev/{self.prefix}-") and topic.endswith("/telemetry")

    def _is_sent(self, topic: str) -> bool:
        """Return whether the topic is that of a reading of these boards or other devices."""
        return self._is_mine(topic) or (self._others is not None and self._others.is_theirs(topic))

    @contextlib.contextmanager
    def _boards(self, target: brokers.Broker) -> Iterator[dict[Command, str]]:
        """The boards in a real MicroPython, by their names."""
        command = interpreter.command(f"{HEAP_KB}k")
        if command is None:
            raise DemoError(interpreter.MISSING)
        readings = max(3, int(self.seconds))
        with tempfile.TemporaryDirectory(prefix="flatmq-pipeline-") as folder:
            library = compiled(Path(folder))
            environment = interpreter.environment(library, SHARED, HOST)
            if self.user:
                environment["FLATMQ_USER"] = self.user
            else:
                environment.pop(fleet.PASSWORD, None)
            real = {}
            for number in range(1, self.real + 1):
                name = f"{self.prefix}-mpy-{number}"
                place = Path(folder) / name
                place.mkdir()
                script = str(Path(__file__).with_name("demo_sketch.py"))
                board = self._start(
                    f"micropython-{number}", script, target.host, target.port, name, readings,
                    program=command, cwd=place, env=environment,
                )  # fmt: skip
                real[board] = name
            yield real

    def _boot_of(self, board: Command, name: str) -> truth.Boot:
        """Return what a board says, at its end, that it did."""
        board.wait(START)
        for line in board.words().splitlines():
            word, *numbers = line.split()
            if word == "@told":
                boot, readings, lost, pending = map(int, numbers)
                if lost or pending:
                    raise board.failure("could not send all of its readings")
                return truth.Boot(
                    name, boot, readings=readings, published=readings, acknowledged=readings
                )
        raise board.failure("has not reported what it did")

    # The tables

    def _landed(self) -> Landed:
        """Read with deltalake, as another tool would."""
        mine, rows = Landed(), self._rows

        def count(name: str) -> int:
            return sum(self._is_mine(str(row["topic"])) for row in rows(name, "topic"))

        mine.messages = count("raw")
        mine.readings = count("measurements")
        mine.dead = count("dead_letters")
        if self._others is not None:
            topics = [str(row["topic"]) for row in rows("measurements", "topic")]
            mine.others = sum(map(self._others.is_theirs, topics))
        for row in rows("health", "device", "boot", "received", "duplicates", "lost", "reordered"):
            device = str(row["device"])
            if device.startswith(self.prefix):
                mine.seen[device, int(str(row["boot"]))] = compare.Seen(
                    *(int(str(row[c])) for c in ("received", "duplicates", "lost", "reordered"))
                )
        mine.silent = {
            str(row["device"])
            for row in rows("devices", "device", "silent")
            if row["silent"] and str(row["device"]).startswith(self.prefix)
        }
        return mine

    def _verdict(self, boots: list[truth.Boot], landed: Landed, ended: float) -> tuple[int, str]:
        """Show what the tables say beside what was done; an exit status, and the last line."""
        total = truth.summary(boots)
        copies = total.duplicated
        sent = total.published + copies
        gaps = sum(boot.gaps for boot in boots)
        found = {
            name: sum(getattr(each, name) for each in landed.seen.values())
            for name in ("duplicates", "lost", "reordered")
        }
        # What the boards did on purpose, and what the network may have added to it.
        open_, again = total.unacknowledged, total.again
        # Of several ingests nobody knows whose message came first.
        order = self.ingests == 1
        # A board that fell silent just now is not yet silent for long enough.
        silent = {boot.device for boot in boots if boot.end in (plan.DEAD, plan.STUCK)}
        surely = {
            boot.device
            for boot in boots
            if boot.device in silent and boot.end != plan.REBOOT and ended - boot.ended > 6
        }
        rows = [
            ("messages sent", sent - open_, sent + again, landed.messages, "landed, in raw"),
            ("readings", total.published - open_, total.published, landed.readings,
             "in measurements, once each"),
            ("lost", gaps - open_, gaps + open_, found["lost"], "found in health"),
            ("duplicated", copies - open_, copies + again, found["duplicates"], "found in health"),
            ("out of order", total.reordered - open_ if order else 0,
             total.reordered + again if order else sent, found["reordered"], "found in health"),
            ("boots", total.boots, total.boots, len(landed.seen), "found in health"),
            ("silent boards", len(surely), len(silent), len(landed.silent), "found in health"),
            ("dead letters", 0, 0, landed.dead, "in dead_letters"),
        ]  # fmt: skip
        if self._others is not None:
            values = self._others.published.values
            where = "in measurements, of Zigbee2MQTT and Tasmota"
            rows.append(("values of others", values, values, landed.others, where))
        wrong = compare.differences(boots, landed.seen, order)
        if not surely <= landed.silent <= silent:
            wrong.append(
                f"silent: {sorted(landed.silent - silent)} are not, "
                f"{sorted(surely - landed.silent)} are missing"
            )
        wrong += shown(rows, self.console)
        for line in wrong[:SHOWN]:
            self._say(line)
        if len(wrong) > SHOWN:
            self._say(f"... and {len(wrong) - SHOWN} more")
        verdict = "they agree" if not wrong else f"THEY DISAGREE in {len(wrong)} points"
        line = (
            f"sent {sent:,}, landed {landed.messages:,}; "
            f"lost {gaps:,}, found {found['lost']:,}; "
            f"duplicated {copies:,}, found {found['duplicates']:,}: {verdict}"
        )
        return (1 if wrong else 0), line


def shown(rows: Sequence[tuple[str, int, int, int, str]], console: Console) -> list[str]:
    """Print the final table, and return the rows that are wrong.

    rows  name, the least and the most that the boards did, what is in the tables, and where
    """
    table, wrong = Table(box=box.SIMPLE), []
    for head in ("", "the boards", "the tables"):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, least, most, is_, where in rows:
        did = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        good = least <= is_ <= most
        table.add_row(name, did, f"{is_:,}", where if good else f"{where}  WRONG")
        if not good:
            wrong.append(f"{name}: {is_:,}, not {did}")
    console.print(table)
    return wrong


def _receives(ingest: Command) -> bool:
    return "receiving from" in ingest.words()


def main(demo: Demo) -> int:
    """Run a demo; an earlier demo in its folder is removed.

    The folder gets the tables, the report and the output of each process.

    $BROKER (host:port) names a broker that runs already, $SPARK_MASTER a Spark. Returns 0 when
    the tables say what the boards did, 1 when they do not. Raises DemoError, CommandError,
    BrokerError, ToolError.
    """
    out = demo.out
    mark = out / ".flatmq-demo"
    try:
        if out.exists() and any(out.iterdir()):
            if not mark.exists():
                raise DemoError(f"{out} is there, and not of a demo: name another folder")
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise DemoError(f"{out} cannot be written: {error.strerror}") from error
    # Whoever ends it ends its processes with it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: sys.exit(128 + which))
    address = os.environ.get("BROKER")
    with brokers.external(address) if address else brokers.embedded() as target:
        return demo.run(target)
