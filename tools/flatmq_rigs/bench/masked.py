"""A WebSocket beside TCP: publishing, measured over a link in memory on 64 and on 32 bits."""

from __future__ import annotations

import tempfile
from pathlib import Path

from flatmq_rigs.bench.work import BITS, FLATMQ, OPERATIONS, ROUNDS, Work, run
from flatmq_rigs.results import number, table
from flatmq_tools.bytecode import compiled

SECTION = "websocket"  # of the document
WEBSOCKET = "websocket"
LIMIT = 2.5  # the most that it may take, as a multiple of TCP, where masking is native
NAMES = ("publish", "publish_burst")
_MODULES = ("memory", "mixes", "packets", "work", "masked")
_BEGIN = "import masked, work; clients = [work.Flatmq(), masked.Masked()]"
_HEAP = "work.measure_heap(clients, masked.OPERATIONS)"
_ROUND = "work.measure_round(clients, 256, masked.OPERATIONS)"


class Masked(Work):
    """Microseconds per message by bits, link and operation, as in `Work`."""

    def ratio_of(self, bits: str, operation: str) -> float | None:
        """Return what a WebSocket takes as a multiple of TCP, by the least of the rounds."""
        tcp, framed = (self.rounds.get((bits, link, operation)) for link in (FLATMQ, WEBSOCKET))
        return min(framed) / min(tcp) if tcp and framed else None

    def missed(self) -> list[str]:
        """Say which operations take more than LIMIT."""
        ratios = [(name, self.ratio_of(BITS[0], name)) for name in NAMES]
        return [
            f"{OPERATIONS[name]}, over a WebSocket: {number(ratio)} times TCP, more than {LIMIT}"
            for name, ratio in ratios
            if ratio is not None and ratio > LIMIT
        ]

    def markdown(self) -> str:
        rows = [
            [f"{OPERATIONS[name]}, {bits}", number(self.ratio_of(bits, name)),
             number(self.heap.get((bits, WEBSOCKET, name)))]
            for bits in BITS
            for name in NAMES
        ]  # fmt: skip
        return "\n\n".join([
            "## A WebSocket beside TCP: the interpreter's work alone",
            "`make bench`: multiples of the same over TCP; at most "
            f"{LIMIT} with MicroPython's module `websocket`, which the 32-bit interpreter lacks.",
            table(["µs per message", "× TCP", "B"], rows),
            *self.notes,
        ])  # fmt: skip


def measure(rounds: int = ROUNDS) -> Masked:
    """Measure on each interpreter that is here. Raises WorkError if that fails."""
    found = Masked()
    with tempfile.TemporaryDirectory(prefix="flatmq-masked-") as name:
        run(found, compiled(Path(name)), _MODULES, (_BEGIN, _HEAP), _ROUND, rounds)
    return found
