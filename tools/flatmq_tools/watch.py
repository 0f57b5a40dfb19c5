"""The newest readings of boards, shown in the terminal as they arrive."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flatmq import Client, MQTTError
from flatmq.rare.message import Message

from . import senml
from .password import PASSWORD
from .trust import Trust

FILTERS = ["dev/+/status", "dev/+/telemetry"]
TURN_MS = 200
LARGEST = 16_384  # bytes of a message: others are skipped
PATIENCE_MS = 10_000  # for the broker, and for its word on the subscription


class WatchError(RuntimeError):
    """The broker does not let it watch; the text says why."""


@dataclass
class Device:
    """The known state of a board."""

    status: str = ""
    boot: object = None
    seq: int = 0
    packs: int = 0
    lost: int = 0
    """Sequence numbers that were passed over, since it is watched."""
    boots: int = 0
    """Boots seen, since it is watched."""
    readings: dict[str, senml.Record] = field(default_factory=dict)
    heard: float = 0.0
    """By the monotonic clock, in seconds."""

    def take(self, records: list[senml.Record]) -> None:
        """Take a pack in."""
        values = {record.name.rpartition("/")[2]: record for record in records}
        boot, seq = values.pop("boot", None), values.pop("seq", None)
        if boot and seq and isinstance(seq.value, int):
            if boot.value != self.boot:
                self.boot = boot.value
                self.boots += 1
            elif seq.value > self.seq:
                self.lost += seq.value - self.seq - 1
            self.seq = seq.value
        self.packs += 1
        self.heard = time.monotonic()
        self.readings.update(values)


class Watch:
    """The boards that are watched, by name."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.packs = 0
        self.trouble: list[str] = []

    def take(self, topic: str, payload: bytes) -> str:
        """Take a message in; return it as a line of text."""
        name, _, what = topic.split("/", 1)[1].rpartition("/")
        device = self.devices.setdefault(name, Device())
        if what == "status":
            device.status = payload.decode(errors="replace")
            return f"{name} is {device.status}"
        self.packs += 1
        try:
            records = senml.resolve(payload)
        except senml.PackError as error:
            self.trouble.append(f"{name}: {error}")
            return self.trouble[-1]
        device.take(records)
        return f"{name}  {shown(device.readings)}"

    def table(self) -> Table:
        """Everything that is known."""
        table = Table(box=box.SIMPLE)
        for head in ("board", "is", "readings"):
            table.add_column(head, overflow="fold")
        for head in ("seq", "lost", "boots", "s ago"):
            table.add_column(head, justify="right")
        now = time.monotonic()
        for name, device in sorted(self.devices.items()):
            heard = f"{now - device.heard:.0f}" if device.packs else ""
            table.add_row(
                Text(name), Text(device.status), Text(shown(device.readings)), str(device.seq),
                str(device.lost), str(device.boots), heard,
            )  # fmt: skip
        return table


def shown(readings: dict[str, senml.Record]) -> str:
    """Return values and their units in one line."""
    return "  ".join(f"{name} {r.value} {UNITS.get(r.unit, r.unit)}".rstrip()
                     for name, r in readings.items())  # fmt: skip


UNITS = {"Cel": "°C", "%RH": "%"}  # as people write SenML's units (RFC 8428, 12.1)


def made(host: str, port: int, user: str | None, trust: Trust | None, name: str) -> Client:
    """Return a client of a command that is called `name`, not connected yet.

    The password of `user` is in the environment, as FLATMQ_PASSWORD. `trust`: connect with TLS.
    """
    return Client(
        f"{name}-{os.getpid()}",
        host,
        port,
        user=user,
        password=os.environ.get(PASSWORD),
        link=trust.link(host, port) if trust else None,
        rx_size=LARGEST,
        quiet=True,
    )


def follow(
    client: Client, filters: list[str], take: Callable[[str, Message], object], qos: int = 1
) -> None:
    """Connect and subscribe; `take` is called with each topic and message.

    Raises WatchError when the broker does not allow it.
    """

    def named(message: Message) -> None:
        take(message.topic.decode(errors="replace"), message)

    subscription = client.subscribe([f.encode() for f in filters], named, qos=qos)
    try:
        client.connect(PATIENCE_MS)
    except MQTTError as error:
        raise WatchError(f"cannot connect to the broker: {error}") from error
    end = time.monotonic() + PATIENCE_MS / 1000
    while subscription.granted is None and time.monotonic() < end:
        client.poll(TURN_MS)
    if subscription.granted is None or 0x80 in subscription.granted:
        raise WatchError(f"the broker refuses the subscription to {', '.join(filters)}")


def main(
    host: str,
    port: int,
    user: str | None,
    seconds: float | None,
    packs: int | None,
    trust: Trust | None = None,
) -> int:
    """Watch until Ctrl-C, for so many seconds, or until so many packs came; 1 if they did not.

    `user` and `trust` are as for `made`. Raises WatchError and TrustError.
    """
    console = Console()
    watch = Watch()
    lines: list[str] = []
    client = made(host, port, user, trust, "watch")
    end = None if seconds is None else time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        follow(client, FILTERS, lambda topic, m: lines.append(watch.take(topic, m.payload)))
        live = stack.enter_context(Live(console=console)) if console.is_terminal else None
        over = False
        while not over:
            client.poll(TURN_MS)
            over = _over(watch, end, packs)
            if live:
                live.update(watch.table())
                continue
            for line in lines:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            lines.clear()
    client.disconnect()
    for line in watch.trouble if console.is_terminal else ():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if packs is not None and watch.packs < packs else 0


def _over(watch: Watch, end: float | None, packs: int | None) -> bool:
    if packs is not None and watch.packs >= packs:
        return True
    return end is not None and time.monotonic() >= end
