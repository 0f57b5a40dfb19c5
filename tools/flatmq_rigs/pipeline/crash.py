"""Kill parts of the pipeline and count what is missing or twice in the tables.

Numbered readings are published at QoS 1 while `flatmq pipeline run` makes tables of them. Again
and again one of the parts is ended with SIGKILL, at any moment, and started again. At the end the
tables are read by two readers and counted.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession
from rich.progress import Progress

from flatmq import Client
from flatmq_tools.broker import Broker, mosquitto
from flatmq_tools.pipeline import processes, service
from flatmq_tools.pipeline.processes import Command, CommandError, alive, environment, family, wait
from flatmq_tools.pipeline.run import Plan, Run

from .. import results
from .bench.messages import MOSQUITTO, pack
from .crash_tables import READERS, Count, Tables

PARTS = (
    "driver",  # the Python process of `flatmq pipeline run`, which also receives
    "jvm",  # Spark itself, the child of the driver
    "broker",  # mosquitto with persistence
    "ingest",  # `flatmq pipeline ingest`, which writes raw beside a run that reads it
    "compaction",  # what merges the files of the tables, beside a run that writes
    "store",  # the driver, while it writes to an S3 on this machine
)
_JOBS = ("measurements",)
TOPIC = b"dev/crash/telemetry"
_PUBLISHER = b"crash-publisher"
# It writes its whole database for each message, and no sync waits for a disk here. SIGKILL takes
# no more from a file system in memory than from the cache of a disk: nothing.
_MEMORY = Path("/dev/shm")
_PATIENCE = 180.0  # s for anything to happen
_STILL = 120.0  # s without one row more, after which there will be none
_LOOK = 0.2  # s
_RANDOM = 1.5  # s after the first messages of a start, within which it is killed
_RATE = 1500  # messages a second while they are let go
_JAVA = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"  # starts sooner
_MAINTAIN = """
import pathlib, sys
from flatmq_tools.pipeline.maintenance import Maintenance
out = sys.argv[1]
Maintenance(out, pathlib.Path(out, "checkpoints"), sys.exit).work()
"""
_KILLED = "Error: Spark's Java process was ended by SIGKILL"


@dataclass
class Result:
    """The result of a run."""

    parts: Sequence[str]
    messages: int
    kills: int
    again: int
    """Messages that the broker delivered again, each with an offset of its own in raw."""
    seconds: float
    counts: dict[str, Count] = field(default_factory=dict)
    """By table and reader."""
    lost: int = 0
    """Messages that a broker acknowledged and did not have any more after its end; they are not
    counted as missing. See `last_words`."""

    @property
    def good(self) -> bool:
        """True if no reader finds a missing or duplicate reading."""
        return bool(self.counts) and not any(c.missing or c.twice for c in self.counts.values())


class _Program(Command):
    """A command that is started again after each end."""

    def kill(self, pid: int) -> str:
        """Kill the process or one of its descendants; return what it said.

        Wait until all of them are gone, as they have to end by themselves then.
        """
        family_then = family(self.pid)
        os.kill(pid, signal.SIGKILL)
        # Without the one that was killed the driver has to end by itself, with an error.
        runs = f"still runs without process {pid}"
        wait(lambda: f"{self.tail()}\n{runs}", lambda: self.over, _PATIENCE)
        wait(
            lambda: f"processes left behind: {[p for p in family_then if alive(p)]}",
            lambda: not any(map(alive, family_then)), _PATIENCE,
        )  # fmt: skip
        return self.words()


class _Here(Run):
    """A run in this process: nothing kills it, and it takes no start of Spark."""

    def check(self) -> None:
        """Raise RunError if a query has ended."""
        self.look()

    def until(self, ready: Callable[[], object], patience: float) -> None:
        """Wait until that is so."""

        def looked() -> object:
            self.look()
            return ready()

        wait("it did not happen", looked, patience)

    def end(self, _patience: float) -> float:
        """Work off what is there; return the seconds that this took."""
        since = time.monotonic()
        self.finish()
        return time.monotonic() - since


class _Publisher:
    """A publisher, in a thread, of readings numbered from 1, up to a number that it is given."""

    def __init__(self, broker: Broker) -> None:
        self._client = Client(
            _PUBLISHER, broker.host, broker.port, clean_session=False, tx_size=1 << 16,
            inflight=100, retry_max_ms=500,
        )  # fmt: skip
        self._client.connect(10_000)
        self._let = 0
        self.numbers: dict[int, int] = {}
        """The number of the newest message with a packet identifier."""
        self.sent = 0
        """How many the broker has acknowledged, or will have."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def let(self, messages: int) -> None:
        """Have it publish up to that number."""
        self._let = messages

    @property
    def done(self) -> bool:
        """True if everything that may be published so far is acknowledged."""
        return self.sent == self._let and not self._client.pending

    def _run(self) -> None:
        while not self._ending.is_set():
            self._client.poll(5)
            for _ in range(_RATE * 5 // 1000):
                if self.sent == self._let:
                    break
                n = self.sent + 1
                pid = self._client.publish(TOPIC, pack(b"crash", n), 1)
                if pid is None:
                    break
                self.numbers[pid] = n
                self.sent = n
        self._client.disconnect()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()


# What the broker itself loses

_FROM = re.compile(rf"Received PUBLISH from {_PUBLISHER.decode()} \(d\d, q1, r\d, m(\d+),")
_TO = re.compile(r"Sending PUBLISH to \S+ \(d\d, q1, r\d, m(\d+),")
_ACKNOWLEDGED = re.compile(r"Received PUBACK from \S+ \(Mid: (\d+),")


def last_words(log: str) -> int | None:
    """The packet identifier of a message that mosquitto acknowledged, and lost when it ended.

    log  what it has written with `log_type all`, up to its end

    It answers first and saves afterwards: of what it answered in its last turn, one packet of a
    client, nothing is left. That is so only if no receiver has acknowledged the message either:
    None then, as it would be the receiver's to keep.
    """
    life = log[log.rfind(" running\n") + 1 :]
    *_, last = [None, *_FROM.finditer(life)]
    if last is None:
        return None
    pid = int(last[1])
    after = life[last.end() :]
    answered = f"Sending PUBACK to {_PUBLISHER.decode()} (m{pid}," in after
    kept = {*_TO.findall(after)} & {*_ACKNOWLEDGED.findall(after)}
    return pid if answered and not kept else None


# A run


class _Stage:
    """Everything that a run needs, in one folder."""

    def __init__(
        self, folder: Path, kills: Iterable[str], trigger: float, version: str,
        here: SparkSession | None,
    ) -> None:  # fmt: skip
        kills = set(kills)
        self.folder = folder
        self._state = folder / "out"
        self.lost: set[int] = set()
        """Numbers of which the broker may have nothing, though it acknowledged them."""
        self._stack = contextlib.ExitStack()
        try:
            self.broker = mosquitto(
                persistence="broker" in kills,
                extra=MOSQUITTO,
                where=_MEMORY if os.access(_MEMORY, os.W_OK) else None,
            )
            self._stack.callback(self.broker.stop)
            out, more = str(self._state), list[str]()
            if "store" in kills:
                out, more = self._store(), ["--state", str(self._state)]
            self.tables = Tables(out)
            fed = ["--broker", self.broker.address, "--filter", "dev/#"]
            fed += ["--option", f"mqttVersion={version}"]
            log = self._state / "log"
            if "ingest" in kills:
                log = folder / "log"
                self.ingest = self._program(
                    "ingest", self.broker.address, out, "--log", str(log),
                    "--filter", "dev/#", "--every", "0.5", "--mqtt-version", version,
                )  # fmt: skip
                fed = []
            self.driver: _Program | _Here
            if here is None:
                self.driver = self._program(
                    "run", out, *fed, *(word for job in _JOBS for word in ("--job", job)), *more,
                    "--trigger", str(trigger), "--conf", _JAVA,
                )  # fmt: skip
            else:
                source = {"brokerUrl": self.broker.address, "topic": "dev/#"}
                plan = Plan(self._state, source, jobs=_JOBS, trigger=trigger)
                self.driver = _Here(here, plan)
                self._stack.callback(self.driver.stop)
            self.driver.until((log / "subscribed.json").exists, _PATIENCE)
            self.publisher = _Publisher(self.broker)
            self._stack.callback(self.publisher.stop)
        except BaseException:
            self.close()
            raise

    def _store(self) -> str:
        """Start a store, and return the URL of a folder in it."""
        from .object_store import BUCKET, store

        self._stack.enter_context(store())
        return f"s3://{BUCKET}/crash"

    def _program(self, *arguments: str) -> _Program:
        program = _Program(self.folder / f"{arguments[0]}.txt", *arguments)
        self._stack.callback(program.stop)
        return program

    def kill(self, part: str, chance: random.Random) -> None:
        """End that part with SIGKILL and start it again."""
        if part == "broker":
            self.broker.kill()
            pid = last_words(self.broker.log())
            if pid is not None:
                self.lost.add(self.publisher.numbers[pid])
            self.broker.restart()
        elif part == "compaction":
            self._kill_compaction(chance)
        elif part == "ingest":
            self.ingest.kill(self.ingest.pid)
            self.ingest.start()
        else:
            driver = self.driver
            assert isinstance(driver, _Program)
            wait(f"there is no {part}", lambda: self._process(part, driver), _PATIENCE)
            found = self._process(part, driver)
            assert found is not None
            said = driver.kill(found)
            if part == "jvm" and (_KILLED not in said or "Traceback" in said):
                raise CommandError(f"{said}\nthis is more, or less, than {_KILLED}")
            driver.start()

    def _process(self, part: str, driver: _Program) -> int | None:
        """Return the process that is a part of a run; None as long as there is none."""
        return driver.find("org.apache.spark.deploy") if part == "jvm" else driver.pid

    def _kill_compaction(self, chance: random.Random) -> None:
        """Compact once, and kill the next compaction at any moment of the same time."""
        command = [sys.executable, "-c", _MAINTAIN, str(self._state)]
        since = time.monotonic()
        whole = subprocess.run(command, env=environment(), timeout=_PATIENCE, check=False)
        if whole.returncode:
            raise CommandError(f"the compaction ended with status {whole.returncode}")
        took = time.monotonic() - since
        with subprocess.Popen(command, env=environment()) as cut:
            with contextlib.suppress(subprocess.TimeoutExpired):
                cut.wait(chance.uniform(took / 3, took))
            cut.kill()

    def wait_for_publisher(self) -> None:
        """Return when all that was let is acknowledged."""
        publisher = self.publisher
        what = "the broker does not take what is published"
        wait(what, lambda: publisher.done, _PATIENCE, lambda: publisher.sent)

    def wait_for_more(self, before: int) -> None:
        """Return when raw has more rows than before."""
        self.driver.until(lambda: self.tables.landed() > before, _PATIENCE)

    def settle(self) -> None:
        """Return when raw and measurements have all messages, or neither has grown for long.

        A run that is asked to end leaves a batch under way to the next run.
        """
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < _STILL:
            self.driver.check()
            landed = self.tables.landed() + self.tables.landed("measurements")
            if landed != seen:
                seen, since = landed, time.monotonic()
            wanted = self.publisher.sent
            with contextlib.suppress(TableNotFoundError):
                if (
                    landed >= 2 * (wanted - len(self.lost))
                    and len(self.tables.numbers() | self.lost) == wanted
                    and len(self.tables.measured() | self.lost) == wanted
                ):
                    return
            time.sleep(_LOOK)

    def close(self) -> None:
        self._stack.close()


def run(
    kills: Sequence[str],
    messages: int,
    spark: SparkSession,
    *,
    trigger: float = 0.5,
    seed: int | None = None,
    version: str = "3.1.1",
    on_kill: Callable[[], None] = lambda: None,
    here: bool = False,
) -> Result:
    """Publish so many messages, kill these parts in their order, and count.

    kills    names of PARTS, each as often as it is to be killed; "ingest" and "store" only alone
    spark    reads the tables at the end
    trigger  s between two batches
    seed     of the moments of the kills
    version  of MQTT, that of what receives: "3.1.1" or "5"
    here     run in this process with `spark`: for kills of broker and compaction alone
    CommandError when something does not start, go on or end; BrokerError.
    """
    moments = random.Random(seed)
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flatmq-crash-") as folder:
        stage = _Stage(Path(folder), kills, trigger, version, spark if here else None)
        try:
            for number, part in enumerate(kills):
                # The kills are spread over the messages.
                stage.wait_for_publisher()
                before = stage.tables.landed()
                stage.publisher.let(messages * (number + 1) // (len(kills) + 1))
                stage.wait_for_more(before)
                time.sleep(moments.uniform(0, _RANDOM))
                stage.kill(part, moments)
                on_kill()
            stage.publisher.let(messages)
            stage.wait_for_publisher()
            stage.settle()
            took = stage.driver.end(_PATIENCE)
            if took > service.LIMIT:
                raise CommandError(f"it took {took:.0f} s to end, and not {service.LIMIT:.0f} s")
            lost = stage.lost - stage.tables.numbers()
            counts, again = stage.tables.counted(messages, spark, lost)
        finally:
            stage.close()
    seconds = time.monotonic() - since
    return Result(kills, messages, len(kills), again, seconds, counts, len(lost))


# The command


def main(
    messages: int, kills: int, parts: Sequence[str], results_path: Path | None, seed: int | None
) -> int:
    """Kill each part in a run of its own, print the result, and write the section "crash".

    The section is written if a file is given. Returns 1 when a message is missing or
    duplicate.
    """
    from flatmq_tools.pipeline.session import session

    signal.signal(signal.SIGTERM, _end)
    found = []
    try:
        spark = session("local[2]", "flatmq crash")
        with Progress() as progress:
            for part in parts:
                task = progress.add_task(f"kill -9: {part}", total=kills)
                step = partial(progress.advance, task)
                found.append(run([part] * kills, messages, spark, seed=seed, on_kill=step))
                if results_path is not None:  # what is found is kept, should the next one fail
                    results.write(results_path, "crash", report(found, messages, kills))
    finally:
        processes.kill(*family(os.getpid())[1:])
    print(report(found, messages, kills))
    return 0 if all(one.good for one in found) else 1


def _end(*_: object) -> None:
    """End what was started together with this process.

    `timeout` signals twice, and the second signal would interrupt the clean-up.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def report(found: Sequence[Result], messages: int, kills: int) -> str:
    """The section of docs/results.md on these runs."""
    killed = {part for one in found for part in one.parts}
    parts = [part for part in PARTS if part in killed]
    only = "" if len(parts) == len(PARTS) else "".join(f" --part {part}" for part in parts)
    text = (
        f"`python -m flatmq_rigs crash --messages {messages} --kills {kills}{only}`: kill "
        "parts of the running pipeline; count missing · twice, for each reader of the tables. "
        "mosquitto acknowledges a message before it saves it: what it lost is counted apart."
    )
    head = ["killed", "messages", "kills", *READERS, "delivered again", "lost by the broker", "s"]
    rows = [
        [
            one.parts[0], results.number(one.messages), results.number(one.kills),
            *(_cell(one, reader) for reader in READERS),
            results.number(one.again), results.number(one.lost), results.number(one.seconds),
        ]
        for one in found
    ]  # fmt: skip
    return "\n\n".join(["## Crashes of the pipeline", text, results.table(head, rows)])


def _cell(one: Result, reader: str) -> str:
    """Return how many messages a reader found missing and twice in a run."""
    counts = [count for name, count in one.counts.items() if name.endswith(f": {reader}")]
    if not counts:
        return "-"
    return f"{sum(c.missing for c in counts)} · {sum(c.twice for c in counts)}"
