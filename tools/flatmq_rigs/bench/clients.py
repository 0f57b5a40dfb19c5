"""Measure flatmq, umqtt.simple and the floor over a socket: CPU time, and calls per message."""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path

from rich.progress import Progress

from flatmq_rigs.bench.peers import umqtt_simple
from flatmq_rigs.results import number, table
from flatmq_tools import bytecode, interpreter

ROUNDS = 5
CPU_MS, RATE_MS = 150, 1500  # that a run of each takes, at least
HEAP_KB = 256  # as much as a roomy board has
FLOOR, FLATMQ, UMQTT = "floor", "flatmq", "umqtt.simple"
# Functions of the clients' modules; the floor's `publish` is also the measure of bursts.
CPU = {"publish": "publish", "publish_burst": "publish", "receive": "receive"}
HEAD = ("publish alone", "in bursts of 16", "receive")
RATE = "rate"
_MEASURE = Path(__file__).parent / "device" / "measure.py"
_MARK = "RESULT "


class Clients:
    """The clients, and what was measured: a value for each round, and the calls."""

    def __init__(self, build: Path, source_port: int, broker_port: int) -> None:
        """Raises PeerError if umqtt.simple cannot be had."""
        self.rounds: dict[tuple[str, str], list[float]] = {}
        self.calls: dict[tuple[str, str], list[float]] = {}
        self.paths = {
            FLOOR: (),
            FLATMQ: (bytecode.SOURCES.parent,),
            UMQTT: (umqtt_simple(build).parents[1],),
        }
        self._source_port = source_port
        self._broker_port = broker_port
        self._numbers = itertools.count(1)

    def measure(self, rounds: int, progress: Progress) -> None:
        """Measure everything; in each round every client has its turn."""
        task = progress.add_task("", total=(1 + rounds) * len(self.paths))
        for turn in range(1 + rounds):
            for client in self.paths:
                progress.update(task, description=f"round {turn}, {client}")
                if turn:
                    self._timed(client)
                elif client != FLOOR:
                    for name in CPU:
                        found = self._measured(client, "calls", self._source_port, name)
                        self.calls[client, name] = found
                progress.advance(task)

    def _timed(self, client: str) -> None:
        for name in CPU:
            if client != FLOOR or name in CPU.values():
                found = self._measured(client, "cpu", self._source_port, f"{name} {CPU_MS}")
                self.rounds.setdefault((client, name), []).extend(found)
        if client != FLOOR:
            found = self._measured(client, RATE, self._broker_port, str(RATE_MS))
            self.rounds.setdefault((client, RATE), []).extend(found)

    def _measured(self, client: str, figure: str, port: int, argument: str) -> list[float]:
        """Return what `device/measure.py` prints. Raises InterpreterError."""
        module = client.replace(".", "_")
        words = (module, figure, str(port), f"bench{next(self._numbers)}", argument)
        path = self.paths[client]
        lines = interpreter.run(f"{HEAP_KB}k", _MEASURE, *words, path=path, timeout=60)
        found: list[float] = json.loads(lines[-1].removeprefix(_MARK))
        return found

    def median(self, client: str, name: str) -> float | None:
        """Return the median of a timed figure; None if the client has none."""
        values = self.rounds.get((client, name))
        return statistics.median(values) if values else None

    def ratio(self, client: str, name: str) -> float | None:
        """Return the median ratio to the floor of the same round."""
        values = self.rounds.get((client, name), ())
        floor = self.rounds.get((FLOOR, CPU[name]), ())
        ratios = [value / least for value, least in zip(values, floor, strict=False)]
        return statistics.median(ratios) if ratios else None

    def speed(self) -> str:
        """Return the table of CPU time per message and QoS 1 per second."""
        rows = []
        for client in self.paths:
            both = [f(client, name) for name in CPU for f in (self.median, self.ratio)]
            rows.append([client, *map(number, [*both, self.median(client, RATE)])])
        head = [each for name in HEAD for each in (name, "×")]
        return table(["", *head, "QoS 1 per s"], rows)

    def socket_calls(self) -> str:
        rows = [
            [client, *(" / ".join(map(number, self.calls[client, name])) for name in CPU)]
            for client in (FLATMQ, UMQTT)
        ]
        return table(["", *HEAD], rows)

    def markdown(self) -> list[str]:
        return [
            "### Speed",
            f"CPU µs per message of 32 bytes, heap of {HEAP_KB} KB, and multiples of bare writes "
            "and reads. umqtt.simple waits for each acknowledgement, so one message is in flight.",
            self.speed(),
            "### Socket calls per message",
            "Writes / reads / others.",
            self.socket_calls(),
        ]
