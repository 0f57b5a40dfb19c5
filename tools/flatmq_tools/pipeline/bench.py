"""How fast is the ingest, beside a client that many use, and beside what no client could beat?

The broker has every message before a receiver comes, so that nobody who publishes takes part.
Each receiver is a process of its own, whose CPU time is taken from the first message to the last
acknowledgement. They take turns.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from flatmq import Client

from .. import broker, results
from .ingest import Ingest
from .landing import Landing
from .log import Writer, read

NAME = "pipeline"
SECTION = "ingest"
DEVICES = 200
PAYLOAD = 92  # bytes; with topic and header a PUBLISH of about 110
GOAL = 2.0  # times the rows per CPU second of paho
CLIENT_ID = "bench-ingest"
FILTER = "dev/#"
CHUNK = 256 * 1024
BATCH = 2000  # messages that paho gathers for a sync, at the most
UNLIMITED = "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true"
_PATIENCE_S = 300


class BenchError(RuntimeError):
    """It cannot be measured, or a target is missed; the text says which."""


class Figure(NamedTuple):
    """What a receiver took for its messages."""

    messages: int
    seconds: float
    cpu: float
    """Seconds, of user and of system."""

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def each_us(self) -> float:
        """CPU time per message, in us."""
        return self.cpu / self.messages * 1e6


class _Watch:
    """Takes the time, and the CPU time of this process."""

    def __init__(self) -> None:
        self._start = time.monotonic(), self._cpu()

    @staticmethod
    def _cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def figure(self, messages: int) -> Figure:
        """What has passed."""
        start, cpu = self._start
        return Figure(messages, time.monotonic() - start, self._cpu() - cpu)


# The receivers. Each is called in a process of its own.


def flatmq(host: str, port: int, folder: Path, count: int) -> Figure:
    """The ingest."""
    with Writer(folder) as log:
        ingest = Ingest(log, (host, port), [FILTER], client_id=CLIENT_ID)
        watch = _Watch()
        ingest.start()
        while log.synced < count:
            ingest.poll(1000)
        ingest.stop()
        return watch.figure(log.next_offset)


def paho(host: str, port: int, folder: Path, count: int) -> Figure:
    """paho-mqtt, which appends the same packets in batches, syncs, and then acknowledges."""
    from paho.mqtt.client import CallbackAPIVersion, MQTTMessage
    from paho.mqtt.client import Client as Paho

    packets: list[bytes] = []
    pending: list[tuple[int, int]] = []

    def on_message(_client: Paho, _data: object, m: MQTTMessage) -> None:
        topic = m.topic.encode()
        size = 4 + len(topic) + len(m.payload)
        head = bytes((0x30 | m.dup << 3 | m.qos << 1 | m.retain, size))
        if size > 127:
            head = bytes((head[0], size & 127 | 128, size >> 7))
        packets.append(
            head + len(topic).to_bytes(2, "big") + topic + m.mid.to_bytes(2, "big") + m.payload
        )
        pending.append((m.mid, m.qos))

    with Writer(folder) as log:
        client = Paho(CallbackAPIVersion.VERSION2, CLIENT_ID, clean_session=False, manual_ack=True)
        client.on_message = on_message
        watch = _Watch()
        client.connect(host, port)
        while log.synced < count:
            sock: Any = client.socket()
            if sock is None:
                raise BenchError("paho lost its connection")
            select.select([sock], [sock] if client.want_write() else [], [], 1)
            before = -1
            while before != len(packets) < BATCH:  # as long as there is something to read
                before = len(packets)
                client.loop_read()
            if packets:
                log.append(b"".join(packets), len(packets), time.time_ns() // 1000)
                log.sync()
                packets.clear()
                for mid, qos in pending:
                    client.ack(mid, qos)
                pending.clear()
            if client.want_write():
                client.loop_write()
            client.loop_misc()
        figure = watch.figure(log.next_offset)
        client.disconnect()
        return figure


def ceiling(_host: str, _port: int, folder: Path, count: int) -> Figure:
    """The same bytes out of a socket into the log, synced by the chunk: nobody looks at them."""
    data = b"".join(_packets(count))
    reads, writes = socket.socketpair()
    feeder = os.fork()
    if not feeder:
        reads.close()
        writes.sendall(data)
        os._exit(0)
    writes.close()
    buf = bytearray(CHUNK)
    with Writer(folder) as log:
        watch = _Watch()
        have = 0
        while n := reads.recv_into(buf):
            have += n
            done = have * count // len(data)
            log.append(memoryview(buf)[:n], max(1, done - log.next_offset), 1)
            log.sync()
        figure = watch.figure(count)
    os.waitpid(feeder, 0)
    return figure


def landing(_host: str, _port: int, folder: Path, count: int) -> Figure:
    """Log to Parquet."""
    with Writer(folder) as log:
        _fill(log, count)
        log.rotate()
        watch = _Watch()
        Landing(log, str(folder / "landed")).land()
        return watch.figure(count)


def reading(_host: str, _port: int, folder: Path, count: int) -> Figure:
    """The log to Arrow, and no further."""
    with Writer(folder) as log:
        _fill(log, count)
        watch = _Watch()
        found = sum(batch.num_rows for batch in read(folder, 0, count))
        return watch.figure(found)


RECEIVERS: dict[str, Callable[[str, int, Path, int], Figure]] = {
    "flatmq": flatmq,
    "paho": paho,
    "ceiling": ceiling,
    "landing": landing,
    "reading": reading,
}
LABELS = {
    "flatmq": "broker to log: flatmq",
    "paho": "broker to log: paho-mqtt",
    "ceiling": "a socket to the log, nobody looks at the bytes",
    "landing": "log to Parquet",
    "reading": "log to Arrow, no sink",
}
FROM_BROKER = ("flatmq", "paho")


def _packets(count: int) -> Iterator[bytes]:
    """The PUBLISH packets that the broker sends, about."""
    for i in range(count):
        topic = b"dev/d%d/telemetry" % (i % DEVICES)
        rest = len(topic).to_bytes(2, "big") + topic + (i % 65535 + 1).to_bytes(2, "big")
        rest += b"%0*d" % (PAYLOAD, i)
        yield bytes((0x32, len(rest))) + rest


def _fill(log: Writer, count: int) -> None:
    batch: list[bytes] = []
    for i, packet in enumerate(_packets(count)):
        batch.append(packet)
        if len(batch) == BATCH or i == count - 1:
            log.append(b"".join(batch), len(batch), time.time_ns() // 1000)
            batch.clear()
    log.sync()


# The desk


def _load(server: broker.Broker, count: int) -> None:
    """Have the broker keep `count` messages for CLIENT_ID."""
    session = Client(CLIENT_ID, server.host, server.port, clean_session=False)
    asked = session.subscribe(FILTER, lambda _: None, 1)
    session.connect()
    end = time.monotonic() + _PATIENCE_S
    while not asked.granted:
        session.poll(10)
        _check(end)
    session.disconnect()
    publisher = Client("bench-publisher", server.host, server.port, tx_size=1 << 19, inflight=255)
    publisher.connect()
    for i in range(count):
        topic = b"dev/d%d/telemetry" % (i % DEVICES)
        while publisher.publish(topic, b"%0*d" % (PAYLOAD, i), 1) is None:
            publisher.poll(10)
            _check(end)
    while publisher.pending:
        publisher.poll(10)
        _check(end)
    publisher.disconnect()


def _check(end: float) -> None:
    if time.monotonic() > end:
        raise BenchError("the broker does not take the messages")


def _measure(name: str, server: broker.Broker | None, count: int) -> Figure:
    folder = Path(tempfile.mkdtemp(prefix="flatmq-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        host, port = (server.host, server.port) if server else ("", 0)
        done = subprocess.run(
            [sys.executable, "-m", __name__, name, host, str(port), str(folder), str(count)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name}: not done after {_PATIENCE_S} s") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise BenchError(f"{name}: {done.stderr.strip()}")
    return Figure(*json.loads(done.stdout))


def measure(
    count: int, rounds: int, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> dict[str, list[Figure]]:
    """The figures of each receiver, one a round."""
    found: dict[str, list[Figure]] = {name: [] for name in RECEIVERS if not only or name in only}
    for i in range(rounds):
        for name, figures in found.items():
            say(f"round {i + 1} of {rounds}: {LABELS[name]}")
            if name in FROM_BROKER:
                # A new one each time: none is slowed down by what another one left.
                with broker.mosquitto(extra=UNLIMITED) as server:
                    _load(server, count)
                    figures.append(_measure(name, server, count))
            else:
                figures.append(_measure(name, None, count))
            if figures[-1].messages < count:
                raise BenchError(f"{name}: {figures[-1].messages} of {count} messages")
    return found


def rows(found: dict[str, list[Figure]]) -> list[list[str]]:
    """A row of the table for each: the medians."""
    made = []
    for name, figures in found.items():
        each = statistics.median(f.each_us for f in figures)
        rate = statistics.median(f.rate for f in figures)
        made.append(
            [LABELS[name], results.number(rate), f"{each:.2f}", results.number(1e6 / each)]
        )
    return made


HEAD = ("part", "rows/s", "CPU per row, us", "rows per CPU s")


def times(found: dict[str, list[Figure]]) -> float:
    """How many times the rows per CPU second of paho flatmq has: the median of the rounds."""
    pairs = zip(found["paho"], found["flatmq"], strict=True)
    return statistics.median(theirs.each_us / ours.each_us for theirs, ours in pairs)


def main(count: int, rounds: int, only: Sequence[str], strict: bool, path: Path | None) -> int:
    """Measures, prints, and writes the section where a path is given. BenchError, also with
    `strict` when the goal is missed."""
    console = Console()
    with console.status("") as status:
        found = measure(count, rounds, only, status.update)
    table = Table(title=f"{count:,} messages of about 110 bytes at QoS 1, medians of {rounds}")
    for i, head in enumerate(HEAD):
        table.add_column(head, justify="right" if i else "left")
    for row in rows(found):
        table.add_row(*row)
    console.print(table)
    ratio = times(found) if "flatmq" in found and "paho" in found else None
    if ratio is not None:
        console.print(f"flatmq takes {ratio:.1f} times the rows per CPU second of paho-mqtt",
                      highlight=False)  # fmt: skip
    if path is not None:
        results.write(path, NAME, section(found, count, rounds))
    if strict and ratio is not None and ratio < GOAL:
        raise BenchError(f"the goal is {GOAL:g} times the rows per CPU second of paho-mqtt")
    return 0


def section(found: dict[str, list[Figure]], count: int, rounds: int) -> str:
    """The part of docs/results.md on the ingest."""
    text = f"""## The pipeline: ingest

`make bench-pipeline`, on {os.cpu_count()} cores: {count:,} messages of about 110 bytes at QoS 1,
which mosquitto has before the receiver comes; each is appended, synced and then acknowledged.
Medians of {rounds} rounds; CPU time is that of the receiver's process, system calls included.

{results.table(HEAD, rows(found))}
"""
    if "flatmq" in found and "paho" in found:
        text += f"\nflatmq takes {times(found):.1f} times the rows per CPU second of paho-mqtt.\n"
    return text


if __name__ == "__main__":
    _, kind, to_host, to_port, into, how_many = sys.argv
    # Ends with the desk: nobody else would end it.
    signal.alarm(_PATIENCE_S)
    print(json.dumps(RECEIVERS[kind](to_host, int(to_port), Path(into), int(how_many))))
