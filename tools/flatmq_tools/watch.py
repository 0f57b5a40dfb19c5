"""The newest readings of boards, shown in the terminal as they arrive."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from . import senml
from .desk_client import Desk, follow, printable, turns
from .plain import PlainConsole

FILTERS = ["dev/+/status", "dev/+/telemetry"]


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
                self.seq = seq.value
            self.lost += max(0, seq.value - self.seq - 1)
            self.seq = max(self.seq, seq.value)
        self.packs += 1
        self.heard = time.monotonic()
        self.readings.update(values)


class Watch:
    """The boards that are watched, by name."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.packs = 0
        self.trouble: deque[str] = deque(maxlen=1000)

    def take(self, topic: str, payload: bytes) -> str:
        """Take a message in; return it as a line of text."""
        name, _, what = printable(topic).split("/", 1)[1].rpartition("/")
        device = self.devices.setdefault(name, Device())
        if what == "status":
            device.status = printable(payload.decode(errors="replace"))
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
        table.add_column("board", no_wrap=True)
        table.add_column("is", min_width=len("offline"), overflow="fold")
        table.add_column("readings", overflow="fold")
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
    return printable("  ".join(f"{name} {r.value} {UNITS.get(r.unit, r.unit)}".rstrip()
                               for name, r in readings.items()))  # fmt: skip


UNITS = {"Cel": "°C", "%RH": "%"}  # as people write SenML's units (RFC 8428, 12.1)


def main(desk: Desk, seconds: float | None, packs: int | None) -> int:
    """Watch until Ctrl-C, for so many seconds, or until so many packs came; 1 if they did not.

    Raises ToolError and TrustError.
    """
    console = PlainConsole()
    watch = Watch()
    lines: list[str] = []
    client = desk.client("watch")
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        follow(client, FILTERS, lambda topic, m: lines.append(watch.take(topic, m.payload)))
        live = stack.enter_context(Live(console=console)) if console.is_terminal else None
        for _ in turns(client, seconds, lambda: packs is not None and watch.packs >= packs):
            if live:
                live.update(watch.table())
            for line in () if live else lines:
                console.print(line, soft_wrap=True)
            lines.clear()
    client.disconnect()
    for line in watch.trouble if console.is_terminal else ():
        console.print(line, soft_wrap=True)
    if packs is not None and watch.packs < packs:
        console.print(f"{watch.packs} of {packs} packs came")
        return 1
    return 0
