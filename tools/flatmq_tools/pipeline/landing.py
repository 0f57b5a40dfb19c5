"""Landing of messages: from the log to the Delta table raw.

Each segment of the log becomes one commit, with the offset after it as its transaction number, and
only then the segment goes. After a SIGKILL at any point the same commit is made again, or found to
be there.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from flatmq.senml import Pack, label

from . import room, tables
from .delta import Delta
from .in_use import INGEST, lock
from .ingest import FULL, Ingest, by_settings
from .log import SCHEMA, LogError, Writer, end_of, read
from .notices import say
from .options import parse, with_defaults

_LOOK_S = 0.5  # between two looks for segments that closed because they were large
_TROUBLE_S = 5.0  # before another try, where the target cannot be written
_TURN_MS = 200
_STOP_S = 8.0  # that the end of a run may take
_EPOCH = 1_577_836_800  # s: 2020, from which the boot ids of the metrics count


class LandingError(RuntimeError):
    """The target cannot be used; the text says why."""


class Landing:
    """A service that lands the closed segments of a `log` in the table raw of `target`.

    `target` is the OUT of a run: a folder, or any URL that deltalake knows. Several logs land in
    one table. Raises LandingError if it cannot be used.
    """

    def __init__(self, log: Writer, target: str) -> None:
        self.log = log
        self.target = target
        try:
            if "://" not in target:
                Path(target).mkdir(parents=True, exist_ok=True)
            tables.check(target)
        except (OSError, ValueError) as error:
            raise LandingError(f"nothing can land in {target}: {error}") from error
        self._raw = Delta(tables.of(target, "raw"), by_day=tables.BY_DAY["raw"])
        self.messages = 0
        """Messages landed since this was made."""
        self.commits = 0
        """Commits since then."""
        self.say: Callable[[str], None] = lambda text: None
        """Takes a line for people when messages cannot land."""

    def land(self) -> int:
        """Land every segment that no longer grows, oldest first; return the number of messages.

        Of a damaged segment what is before the damage is landed, and a copy is kept. Raises
        OSError, DeltaError or SinkError when the target cannot be written; the log then keeps
        what is not landed.
        """
        before = self.messages
        for segment, after in self.log.closed():
            first = max(segment.first, self._raw.last(self.log.id) or 0)
            if first < after:
                try:
                    self._add(first, after, after)
                except LogError as error:  # it would hold up all that follow
                    kept = segment.path.with_suffix(".damaged")
                    shutil.copyfile(segment.path, kept)
                    self._add(first, max(first, end_of(segment)[0]), after)
                    self.say(f"{error}: up to {after - 1} none landed; see {kept}")
            self.log.trim(after)
        return self.messages - before

    def _add(self, first: int, end: int, number: int) -> None:
        batches = read(self.log.folder, first, end)
        parts = (pa.Table.from_batches([batch]) for batch in batches)
        self.messages += self._raw.add(parts, SCHEMA, self.log.id, number)
        self.commits += 1


class Service:
    """An ingest whose log lands every so many seconds, `run` until `stop` is called.

    every_s    s between two commits, while there is something to land
    say        takes a line for people
    metrics    a topic: the status goes to TOPIC/status as that of a board, and the counters as a
               SenML pack to TOPIC/telemetry, every `metrics_s` seconds
    """

    def __init__(
        self,
        ingest: Ingest,
        landing: Landing,
        *,
        every_s: float = 10.0,
        metrics: str | None = None,
        metrics_s: float = 10.0,
        say: Callable[[str], None],
    ) -> None:
        self.ingest = ingest
        ingest.say = say
        self.landing = landing
        landing.say = say
        self._every_s = every_s
        self._print = say
        self._over = threading.Event()
        self._ended = threading.Event()
        self._said = ""
        self._stuck = ""  # why nothing lands,
        self._kind: tuple[Any, ...] = ()  # the kind of that error, whose text may have times,
        self._paused = 0  # and what was said of that: 1, or 2 if nothing is received either,
        self._said_of = self._kind  # and of which kind
        self._metrics = Metrics(ingest, landing, metrics, metrics_s) if metrics else None
        self._thread = threading.Thread(target=self._run, name="receiving", daemon=True)
        self._failed: BaseException | None = None

    def background(self) -> None:
        """Do as `run` in a thread until `stop`. `check` raises what ended it."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failed = error

    def check(self) -> None:
        """Raise what has ended the thread, and IngestError if the broker refuses the client."""
        if self._failed is not None:
            raise self._failed
        self.ingest.check()

    def close(self, patience: float | None = _STOP_S) -> None:
        """Stop, have the thread disconnect and land what came, and release the log.

        What has not landed after `patience` s is in the log. May be called again.
        """
        self.stop()
        self._thread.join(patience)
        self.ingest.log.close()

    def stop(self) -> None:
        """Have `run` end. May be called from a signal handler."""
        self._over.set()

    def run(self) -> None:
        """Receive and land. Raises what the ingest cannot go on after."""
        lander = threading.Thread(target=self._land, name="landing")
        self.ingest.start()
        lander.start()
        try:
            while not self._over.is_set():
                self.ingest.turn(_TURN_MS)
                self._say_paused()
                self._say(self._state())
                if self._metrics:
                    self._metrics.tick()
            if self._metrics:
                self._metrics.bye()
            self.ingest.stop()
        finally:
            self._over.set()
            self._ended.set()
            lander.join()

    def _state(self) -> str:
        """Describe the state for people, in one line."""
        ingest = self.ingest
        where = "{}:{}".format(*ingest.broker)
        if ingest.log.full:
            return FULL.format(ingest.log.folder)
        if ingest.subscribed:
            expiry = ingest.session_expiry
            kept = "" if expiry is None else f"; the broker keeps the session for {expiry:,} s"
            return f"receiving from {where} into {self.landing.target}{kept}"
        if ingest.connected:
            return f"subscribing at {where}"
        error = ingest.error
        return f"no connection to {where}: {error.detail}" if error else f"connecting to {where}"

    @property
    def paused(self) -> bool:
        """True while nothing is received because the log, or its disk, is full."""
        return self.ingest.trouble is not None or self.ingest.log.full

    def _say_paused(self) -> None:
        """Report when the log or target takes nothing, and once when both go on."""
        trouble, stuck = self.ingest.trouble, self._stuck
        now = 2 if trouble else 1 if stuck else 0
        if now > self._paused or (now == 1 and self._kind != self._said_of):
            self._paused, self._said_of = max(now, self._paused), self._kind
            folder = self.ingest.log.folder
            if trouble:
                self._print(f"paused, as the disk of the log in {folder} takes nothing: {trouble}")
            else:
                self._print(f"nothing lands in {self.landing.target}, and waits: {stuck}")
        elif not now and self._paused:
            self._paused = 0
            self._print("going on: what was received is taken again")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._print(text)

    def _land(self) -> None:
        log = self.ingest.log
        due = time.monotonic() + self._every_s
        last = False
        while not last:
            self._ended.wait(min(_LOOK_S, self._every_s))
            last = self._ended.is_set()
            try:
                if last or time.monotonic() >= due:
                    due = time.monotonic() + self._every_s
                    log.rotate()
                self.landing.land()
                self._stuck = ""
            except BaseException as error:  # a panic of deltalake, too: receiving goes on
                # If the log is on the same disk, the ingest reports that.
                same = room.is_full(error) and not room.has_room([log.folder])
                self._kind = type(error), getattr(error, "errno", None)
                self._stuck = "" if same else tables.reason(error)
                self._ended.wait(_TROUBLE_S)
        if self._stuck:
            self._print(f"not all has landed in {self.landing.target}: {self._stuck}")


def started(
    options: Mapping[str, str], folder: Path, out: str, every_s: float, say: Callable[[str], None]
) -> Service:
    """Return the service inside a run, in a thread.

    options  those of format("mqtt")
    folder   that of the log, unless localStorage names another one

    Raises OptionError, TrustError, LogError and LandingError.
    """
    settings = parse(with_defaults(options, {"localStorage": str(folder)}))
    for remark in settings.remarks:
        say(remark)
    log = Writer(settings.local_storage, settings.log_limit)
    try:
        ingest = by_settings(settings, log, say)
        service = Service(ingest, Landing(log, out), every_s=every_s, say=say)
    except BaseException:
        log.close()
        raise
    service.background()
    return service


class Metrics:
    """The metrics that the service publishes, as a board does; see docs/telemetry.md."""

    NAMES = (
        ("received", b"count"), ("landed", b"count"), ("commits", b"count"), ("log", b"B"),
        ("connects", b"count"), ("full", b""),
    )  # fmt: skip

    def __init__(self, ingest: Ingest, landing: Landing, topic: str, every_s: float) -> None:
        self._ingest = ingest
        self._landing = landing
        self._topic = topic
        self._every_s = every_s
        self._due = 0.0
        self._connects = 0
        self._seq = 0
        name = topic.rpartition("/")[2]
        boot = max(1, int(time.time()) - _EPOCH) & 0x3FFFFFFF
        self._pack = Pack(name, boot, 512 + len(name))
        self._labels = [label("ingest/" + name, unit) for name, unit in self.NAMES]
        ingest.client.set_will(f"{topic}/status", b"offline", qos=1, retain=True)

    def tick(self) -> None:
        """Publish what is due; nothing while not subscribed."""
        client = self._ingest.client
        if not self._ingest.subscribed:
            return
        if client.stats.connects != self._connects:
            if client.publish(f"{self._topic}/status", b"online", 1, True) is None:
                return
            self._connects = client.stats.connects
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        log = self._ingest.log
        values = (
            client.messages, self._landing.messages, self._landing.commits, log.size,
            client.stats.connects, int(log.full),
        )  # fmt: skip
        self._pack.begin(self._seq + 1)
        for what, value in zip(self._labels, values, strict=True):
            self._pack.number(what, value)
        if client.publish(f"{self._topic}/telemetry", self._pack.payload(), 1) is not None:
            self._seq += 1

    def bye(self) -> None:
        """Say that it ends in good order."""
        client = self._ingest.client
        if client.connected:
            client.publish(f"{self._topic}/status", b"offline", 1, True)
            client.wait(1000)


def main(
    ingest: Ingest, target: str, seconds: float | None, metrics_port: tuple[str, int] | None,
    **how: Any,
) -> None:  # fmt: skip
    """Receive and land until SIGTERM, Ctrl-C, or for a number of seconds.

    Then everything that was received is landed. `metrics_port` is the address and port of
    metrics for Prometheus, if they are served, and `how` is for the Service. Raises LandingError,
    MetricsError, and what `Service.run` raises.
    """
    from .metrics import of_ingest, served

    landing = Landing(ingest.log, target)
    service = Service(ingest, landing, say=say, **how)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    if seconds is not None:
        end = threading.Timer(seconds, service.stop)
        end.daemon = True
        end.start()
    with contextlib.ExitStack() as held:
        if "://" not in target:
            held.enter_context(lock(Path(target), INGEST, shared=True))
        held.enter_context(served(metrics_port, lambda: of_ingest(service)))
        service.run()
    say(
        f"{ingest.client.messages:,} messages received, {landing.messages:,} landed in "
        f"{landing.commits:,} commit{'' if landing.commits == 1 else 's'}"
    )
