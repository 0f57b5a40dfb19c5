"""The messages that pass through the pipeline while it is measured.

They are packs of boards, which the broker keeps for a client that is away, so that no publisher is
the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from flatmq import Client
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline.log import Writer

from .figures import BenchError

DEVICES = 200
CLIENT_ID = "bench-ingest"
FILTER = "dev/#"
SYNCED = 2000  # messages of a sync, in a log that is made here
# Nothing is dropped, and nothing waits for acknowledgements.
MOSQUITTO = "max_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true"
PATIENCE = 300  # s


def topic(i: int) -> bytes:
    """That of message `i`, from 0."""
    return b"dev/d%d/telemetry" % (i % DEVICES)


def pack(device: bytes, seq: int, degrees: int = 20) -> bytes:
    """A pack of a board, with a temperature half a degree above `degrees`."""
    return (
        b'[{"bn":"%s/","n":"boot","v":1},{"n":"seq","v":%d},{"n":"chip/temp","u":"Cel","v":%d.5}]'
        % (device, seq, degrees)
    )


def payload(i: int) -> bytes:
    """That of message `i`, from 0: about 90 bytes; with topic and header a PUBLISH of 110."""
    return pack(b"d%d" % (i % DEVICES), i // DEVICES + 1, i % 40)


def packets(count: int, version: int = 4) -> Iterator[bytes]:
    """The PUBLISH packets that the broker sends, about."""
    for i in range(count):
        name = topic(i)
        rest = len(name).to_bytes(2, "big") + name + (i % 65535 + 1).to_bytes(2, "big")
        if version == 5:
            rest += b"\0"  # no properties
        rest += payload(i)
        yield bytes((0x32, len(rest))) + rest


def stream(count: int, version: int = 4) -> bytes:
    """Return the bytes that a broker sends for this many messages in that version of MQTT."""
    return b"".join(packets(count, version))


def fill(log: Writer, count: int) -> None:
    """Append so many messages."""
    batch: list[bytes] = []
    for i, packet in enumerate(packets(count)):
        batch.append(packet)
        if len(batch) == SYNCED or i == count - 1:
            log.append(b"".join(batch), len(batch), time.time_ns() // 1000)
            batch.clear()
    log.sync()


def load(server: Broker, count: int) -> None:
    """Have the broker keep this many messages for CLIENT_ID, at QoS 1."""
    due = _patience("the broker does not take the messages")
    session = Client(CLIENT_ID, server.host, server.port, clean_session=False)
    asked = session.subscribe(FILTER, lambda _: None, 1)
    session.connect()
    while not asked.granted:
        session.poll(10)
        due()
    session.disconnect()
    publisher = Client("bench-publisher", server.host, server.port, tx_size=1 << 19, inflight=255)
    publisher.connect()
    for i in range(count):
        while publisher.publish(topic(i), payload(i), 1) is None:
            publisher.poll(10)
            due()
    while publisher.pending:
        publisher.poll(10)
        due()
    publisher.disconnect()


def _patience(what: str) -> Callable[[], None]:
    end = time.monotonic() + PATIENCE

    def due() -> None:
        if time.monotonic() > end:
            raise BenchError(f"{what} within {PATIENCE} s")

    return due
