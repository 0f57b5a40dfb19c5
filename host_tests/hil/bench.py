"""`python -m hil.bench`: memory and time on the board at $BOARD_PORT, beside umqtt.simple.

The variables are those of `python -m hil`. Without BOARD_BROKER only memory is measured.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from flatmq_rigs import results
from flatmq_rigs.bench.peers import PeerError, umqtt_simple
from flatmq_tools import bytecode

from . import command
from .suite import HERE, HOME, JOIN_MS, Suite

ARRIVE_MS = 100  # in which a message is there and back; delayed acknowledgements take 40
FLATMQ, UMQTT, FLOOR = "flatmq", "umqtt", "floor"
# Step of device/board_bench.py -> row of the table.
STEPS = {
    "import": "heap held after the import",
    "made": "… after the client is made",
    "subscribed": "… after the first `subscribe`",
}
OPERATIONS = {
    "publish": "publish QoS 0, publish + flush",
    "publish_burst": "publish QoS 0 in bursts of 8, each",
    "trip": "QoS 1 round trip, one in flight",
    "trip_burst": "QoS 1 round trip, eight in flight, each",
    "receive": "receive QoS 0, one at a time",
    "receive_burst": "receive QoS 0 in bursts of 8, each",
    "idle": "idle poll",
    "ping": "send PINGREQ",
    "pong": "take PINGRESP",
}


class Bench(Suite):
    """The measurement with one board; `held`, `us` and `left` are by client and row."""

    name = "board-bench"
    head = ("on the board", "flatmq", "B", "umqtt.simple", "B", "floor")

    def __init__(self, *of_suite: Any) -> None:
        super().__init__(*of_suite)
        self.held: dict[tuple[str, str], int] = {}
        self.us: dict[tuple[str, str], float] = {}
        self.left: dict[tuple[str, str], float] = {}
        self.notes: list[str] = []

    def run(self) -> None:
        """Measure everything. Raises RemoteError when it cannot even begin, or a step fails."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._remote)
            self._say("interrupting what runs on the board ...")
            self._remote.enter()
            stack.callback(self._leave)
            self._begin()
            clients = self._load()
            if self._where.broker is None:
                self._network = "BOARD_BROKER is not set"
            for client in clients:
                self._weigh(client)
            if self._network:
                self._note(f"Times were not measured: {self._network}.")
                return
            for client in (FLOOR, *clients):
                self._time(client)

    def _load(self) -> list[str]:
        """Put everything on the board; return the clients that are there."""
        clients = [FLATMQ]
        with tempfile.TemporaryDirectory(prefix="flatmq-hil-") as name:
            folder = bytecode.compiled(Path(name))
            for stem in ("board_bench", "board_wifi"):
                source = HERE / "device" / f"{stem}.py"
                bytecode.compile_module(source, folder / f"{stem}.mpy", source.name)
            try:
                source = umqtt_simple(self._build)
                target = folder / "umqtt" / "simple.mpy"
                bytecode.compile_module(source, target, "umqtt/simple.py")
                clients.append(UMQTT)
            except PeerError as error:
                self._note(f"umqtt.simple was not measured: {error}.")
            files = {
                f"{HOME}/{path.relative_to(folder)}": path.read_bytes()
                for path in sorted(folder.rglob("*.mpy"))
            }
        self._put(files)
        return clients

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._say(text)

    def _ready(self) -> None:
        """A board with an empty heap that has joined the network."""
        self._fresh()
        if self._where.wifi and not self._network:
            ssid, password = self._where.wifi
            self._told(f"import board_wifi as b; b.join({ssid!r}, {password!r}, {JOIN_MS})")

    def _weigh(self, client: str) -> None:
        self._ready()
        host, port = self._where.broker or ("broker", 1883)
        online = not self._network
        told = self._told(f"import board_bench as b; b.held_{client}({host!r}, {port}, {online})")
        for step, n in told["held"]:
            self.held[client, step] = int(n)
            self._say(f"{client}, {step}: {int(n):,} bytes")

    def _time(self, client: str) -> None:
        self._ready()
        self._say(f"measuring {client} ...")
        told = self._told(f"import board_bench as b; b.{client}({self._there}, {ARRIVE_MS})")
        for name, us, left in told["operation"]:
            self.us[client, name] = float(us)
            self.left[client, name] = float(left)

    def lines(self) -> list[tuple[str, ...]]:
        """The rows of the table: memory, then times with the heap that a message leaves."""

        def time(client: str, name: str) -> str:
            return results.number(self.us.get((client, name)))

        def left(client: str, name: str) -> str:
            return results.number(self.left.get((client, name)))

        rows = []
        for step, text in STEPS.items():
            held = [self.held.get((client, step)) for client in (FLATMQ, UMQTT)]
            cells = [results.NONE if n is None else f"{n:,} B" for n in held]
            rows.append((text, cells[0], results.NONE, cells[1], results.NONE, results.NONE))
        for name, text in OPERATIONS.items():
            cells = [figure(client, name) for client in (FLATMQ, UMQTT) for figure in (time, left)]
            rows.append((f"{text}, µs", *cells, time(FLOOR, name)))
        return rows

    def section(self) -> str:
        clock = results.number(self.us.get((FLOOR, "clock")))
        return f"""\
## Memory and time on a board

`python -m flatmq_rigs board-bench` with {self.board}. Both clients as .mpy, on a heap that was
empty. Times are medians by the board's clock, whose reading takes {clock} µs of each. B: bytes of
heap that a message leaves behind. What is received is in the network stack's buffers before the
clock starts; a round trip includes the network. Floor: one write of a ready packet, one read of a
ready one, one read of nothing. umqtt.simple cannot subscribe before it is connected, and has one
message in flight. {" ".join(self.notes)}"""


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 2 when it could not be run."""
    return command.run("The benchmark on a board was", Bench, arguments)


if __name__ == "__main__":
    sys.exit(main())
