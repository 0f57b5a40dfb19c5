"""Load `flatmq pipeline run` as a busy fleet does, and count what is missing or twice.

One run receives, in this order: retained messages that the broker has at the start, a message in
each of many topics, one large message, and a steady stream at QoS 1. While they come, the rows in
the table raw are counted, so the lag is known at any time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from rich.console import Console

from flatmq import Client
from flatmq_tools.broker import Broker, mosquitto
from flatmq_tools.pipeline import service
from flatmq_tools.pipeline.processes import Command, CommandError, row_count, wait

from .. import results
from .bench import messages

_TRIGGER = 1.0  # s, as of `flatmq pipeline run`
_PATIENCE = 240.0  # s without a row more, or for the run to start
_LOOK = 0.25  # s between two looks at the table
_BURST = 0.01  # s of the steady load that are published at once
_NICE = 10  # of the run: the broker, which has no log to fall back on, comes first
_UNDER_WAY = 30_000  # messages of the steady load that are not acknowledged, at most
_CONNECT = b"\x10\x17\0\x04MQTT\x04\x02\0\0\0\x0blive-steady"  # without a keep alive
_CONNACK = b"\x20\x02\0\0"
_PUBACK = 4  # bytes


@dataclass
class Figures:
    """The measurements of one kind of load."""

    name: str
    messages: int
    seconds: float
    """From the first message to its last row in raw."""
    largest: int
    """Lag: messages that the broker had acknowledged and raw did not have, at most."""
    at_end: int
    """The same when the last message was acknowledged."""
    wait: float
    """s from then to the last row."""
    published: float = 0.0
    """s from the first message to the last one."""
    missing: int = -1
    twice: int = -1


class _Stream:
    """A connection that publishes at QoS 1 without waiting for each acknowledgement.

    A client would take a core for as many messages as the run needs.
    """

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port))
        self._socket.sendall(_CONNECT)
        if self._socket.recv(4, socket.MSG_WAITALL) != _CONNACK:
            raise CommandError("the broker refuses the connection of the steady load")
        self._socket.setblocking(False)
        self._out = bytearray()
        self._acknowledged = 0  # bytes
        self.sent = 0
        """Messages that were handed over."""

    @property
    def pending(self) -> int:
        """Messages that the broker has not acknowledged."""
        return self.sent - self._acknowledged // _PUBACK

    def publish(self, packets: Iterable[bytes], count: int) -> None:
        """Send so many PUBLISH packets of `packets`."""
        self._out += b"".join(itertools.islice(packets, count))
        self.sent += count
        self.poll(0)

    def poll(self, ms: int) -> None:
        """Send what waits, and take acknowledgements, for up to `ms` milliseconds."""
        readable, writable, _ = select.select(
            [self._socket], [self._socket] if self._out else [], [], ms / 1000
        )
        if writable:
            del self._out[: self._socket.send(self._out)]
        if readable:
            data = self._socket.recv(1 << 18)
            if not data:
                raise CommandError("the broker has ended the connection of the steady load")
            self._acknowledged += len(data)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


class _Run(Command):
    """A process of `flatmq pipeline run`, and what it has received so far."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.out = folder / "out"
        super().__init__(
            folder / "run.txt", "run", self.out, "--broker", broker.address, "--filter", "dev/#",
            "--trigger", str(_TRIGGER), nice=_NICE,
        )  # fmt: skip
        self.expected = 0
        """Messages that were published so far."""

    def rows(self) -> int:
        """Return how many messages are in the table raw."""
        return row_count(self.out / "raw")

    def wait_for(
        self, what: str, client: Client | _Stream, left: Callable[[], int], look: float = _LOOK
    ) -> None:
        """Poll the client until nothing is `left`, which is looked at every `look` seconds.

        Raises CommandError if that number stays the same for too long.
        """

        def done() -> bool:
            self.check()
            client.poll(round(look * 1000))
            return left() <= 0

        wait(lambda: f"{what}: {left()}", done, _PATIENCE, left, look=0)


def _publish(client: Client, topic: bytes, payload: bytes, retain: bool = False) -> None:
    while client.publish(topic, payload, 1, retain) is None:
        client.poll(5)


def _settle(client: Client | _Stream, run: _Run) -> None:
    run.wait_for("messages that are not acknowledged", client, lambda: client.pending, 0.01)


def _measure(run: _Run, name: str, client: Client | _Stream, steps: Iterator[int]) -> Figures:
    """Publish as `steps` does, which yields the messages published so far, and wait for the rows.

    The table is looked at every _LOOK seconds.
    """
    before, since = run.expected, time.monotonic()
    sent, largest, looked = 0, 0, 0.0

    def lag() -> int:
        return before + sent - client.pending - run.rows()

    for sent in steps:  # noqa: B007 (the closure reads it)
        client.poll(0)
        if time.monotonic() - looked > _LOOK:
            run.check()
            looked = time.monotonic()
            largest = max(largest, lag())
    published = time.monotonic() - since
    _settle(client, run)
    run.expected = before + sent
    at_end, ended = lag(), time.monotonic()
    run.wait_for(f"{name}, messages that raw lacks", client, lambda: run.expected - run.rows())
    now = time.monotonic()
    return Figures(name, sent, now - since, max(largest, at_end), at_end, now - ended, published)


def _retained(client: Client, count: int) -> None:
    """Have the broker keep this many messages."""
    for i in range(count):
        _publish(client, b"dev/r%d/telemetry" % i, messages.pack(b"r%d" % i, 1), True)
    while client.pending:
        client.poll(20)


def _topics(client: Client, count: int) -> Iterator[int]:
    for i in range(count):
        _publish(client, b"dev/t%d/telemetry" % i, messages.pack(b"t%d" % i, 1))
        yield i + 1


def _large(client: Client, size: int) -> Iterator[int]:
    source = b"x" * size
    while client.publish_from(b"dev/large/blob", source, 1) is None:
        client.poll(20)
    yield 1


def _steady(stream: _Stream, rate: int, seconds: float) -> Iterator[int]:
    """Publish at a rate, in bursts. What the machine was too busy for is made up.

    Between two bursts it sleeps: acknowledgements would wake it thousands of times a second, and
    the cores are for the run.
    """
    total = round(rate * seconds)
    packets = messages.packets(total)
    since = time.monotonic()
    while stream.sent < total:
        due = min(total, int((time.monotonic() - since + _BURST) * rate))
        count = min(due - stream.sent, _UNDER_WAY - stream.pending)
        if count > 0:
            stream.publish(packets, count)
        yield stream.sent
        time.sleep(_BURST)


def count(raw: Path, found: list[Figures], size: int) -> None:
    """Note what is missing or twice in raw, for each kind of load."""
    dataset = DeltaTable(str(raw)).to_pyarrow_dataset()
    if size:
        blob = dataset.to_table(["payload"], filter=ds.field("topic") == "dev/large/blob")
        lengths = pc.binary_length(blob["payload"]).to_pylist()
        if lengths != [size]:
            raise CommandError(f"the large message has {lengths} bytes in raw, not {size}")
    rows = dataset.to_table(["topic", "payload"])
    kinds = pc.utf8_slice_codeunits(rows["topic"], 4, 5)  # after "dev/"
    keys = pa.table({"kind": kinds, "topic": rows["topic"], "payload": rows["payload"]})
    for one in found:
        mine = keys.filter(pc.equal(kinds, one.name[0] if one.name != "steady" else "d"))
        different = mine.group_by(["topic", "payload"]).aggregate([]).num_rows
        one.missing = one.messages - different
        one.twice = mine.num_rows - different


def measure(
    rate: int, seconds: float, topics: int, retained: int, size: int, console: Console
) -> tuple[list[Figures], float]:
    """Have a run receive all of it. Return the figures, and the seconds that its end took."""
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="flatmq-live-") as folder, contextlib.ExitStack() as s:
        broker = mosquitto(extra=messages.MOSQUITTO)
        s.callback(broker.stop)
        client = Client("live-publisher", broker.host, broker.port, tx_size=1 << 19, inflight=255)
        client.connect(10_000)
        s.callback(client.disconnect)
        console.print(f"the broker is given {retained:,} retained messages ...")
        _retained(client, retained)
        since = time.monotonic()
        run = _Run(Path(folder), broker)
        s.callback(run.stop)
        console.print("flatmq pipeline run starts, and receives them ...")
        run.expected = retained
        run.wait_for("retained messages that raw lacks", client, lambda: retained - run.rows())
        took = time.monotonic() - since
        found.append(Figures("retained", retained, took, retained, retained, took))
        stream = _Stream(broker)
        s.callback(stream.close)
        for name, sender, steps in (
            ("topics", client, _topics(client, topics)),
            ("large", client, _large(client, size)),
            ("steady", stream, _steady(stream, rate, seconds)),
        ):
            console.print(f"{name} ...")
            found.append(_measure(run, name, sender, steps))
        ending = run.end(_PATIENCE)
        if ending > service.LIMIT:
            raise CommandError(f"it took {ending:.0f} s to end, and not {service.LIMIT:.0f} s")
        console.print("counting ...")
        count(run.out / "raw", found, size)
    return found, ending


_NAMES = {
    "retained": "retained messages, there before the run starts",
    "topics": "messages, each in a topic of its own",
    "large": "message of {size:,} bytes",
    "steady": "messages at QoS 1, {rate:,} a second",
}


def report(found: list[Figures], ending: float, rate: int, size: int) -> str:
    """Return the section of docs/results.md."""
    rows = [
        [
            _NAMES[one.name].format(rate=rate, size=size),
            f"{one.messages:,}", f"{one.missing:,}", f"{one.twice:,}",
            "-" if one.name == "retained" else f"{one.largest:,}",
            "-" if one.name == "retained" else f"{one.at_end:,}",
            f"{one.wait:.1f}", f"{one.seconds:.1f}",
        ]
        for one in found
    ]  # fmt: skip
    columns = [
        "load", "messages", "missing in raw", "twice in raw", "largest lag, messages",
        "lag at the end, messages", "until the last row, s", "in all, s",
    ]  # fmt: skip
    steady = found[-1]
    published = steady.messages / steady.published
    return "\n\n".join(
        [
            "## A live fleet",
            f"`python -m flatmq_rigs live`: a pipeline run, mosquitto and the publisher on the "
            f"same {os.cpu_count()} cores. Lag is what the broker has acknowledged and raw lacks. "
            f"The steady load was published at {published:,.0f} a second. The run ended "
            f"{ending:.1f} s after SIGTERM.",
            results.table(columns, rows),
        ]
    )


def main(
    rate: int, seconds: float, topics: int, retained: int, size: int, results_path: Path | None
) -> int:
    """Measure, print, and write the section "live". Returns 1 if anything is missing or twice."""
    console = Console(stderr=True)
    found, ending = measure(rate, seconds, topics, retained, size, console)
    text = report(found, ending, rate, size)
    print(text)
    if results_path is not None:
        results.write(results_path, "live", text)
    return 1 if any(one.missing or one.twice for one in found) else 0
