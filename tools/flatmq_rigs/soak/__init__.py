"""Exchange a million messages each way over a link that breaks every few seconds.

The client on a real MicroPython with a small heap, a proxy that breaks its link, a broker that
stays up, and paho-mqtt at the desk, which counts. What it looks for is in verdict.py.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

import flatmq
from flatmq_tools import interpreter
from flatmq_tools.bytecode import compile_module, compiled
from flatmq_tools.demo import Sketch
from flatmq_tools.errors import ToolError

from .. import results
from ..links import Listening
from ..proxy import Proxy
from .faults import KINDS, Faults
from .peer import Peer, PeerError
from .republished import Log
from .verdict import Verdict

SECTION = "soak"
MESSAGES = 1_000_000
# Heaps in which the client never lacked memory; with 16 KB less over TLS it did, where a failed
# handshake is explained. On the unix port the 23 KB of TLS come from malloc.
HEAP_KB = {"tcp": 72, "tls": 96, "websocket": 84, "websocket+tls": 112}
# Seconds until a link counts as lost. A handshake of TLS takes 70 ms of a processor at each end,
# and twenty times as long if the machine is busy: within 1 s it would fail again and again.
TIMEOUT = {"tcp": 1, "tls": 5, "websocket": 1, "websocket+tls": 5}
# Bytes either way before CONNECT, about.
HANDSHAKE = {"tcp": 0, "tls": 1000, "websocket": 200, "websocket+tls": 1200}
NAMES = {
    "tls": " over TLS",
    "websocket": " over WebSocket",
    "websocket+tls": " over WebSocket and TLS",
}
BYTES = 1_000_000  # on average, between two faults
PATIENCE = 60.0  # seconds without anything new until it is given up
DRAIN = 10.0  # seconds that the last messages may be behind the device's end
WIDTH = 110  # columns where there is no terminal
HERE = Path(__file__).parent
LIBRARY = Path(flatmq.__file__).parent  # the client that is put to the test
SCRIPT = ("device", "plan", "ways")

# mosquitto 2.0.11 keeps the order of what it sends only when nothing waits for room in flight,
# hence no limit; the soak limits what is on its way itself (plan.LEAD). Nagle's algorithm would
# hold each answer for 40 ms. Its log says which messages it publishes again: see republished.py.
MOSQUITTO = """
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
log_type none
log_type information
log_type error
log_type warning
log_type notice
log_type debug
"""


@dataclass
class Run:
    """The state of the soak so far."""

    messages: int
    sent: int = 0  # by the device
    came: int = 0  # at the device
    connects: int = 0
    version: str = ""  # of the interpreter
    told: dict[str, list[int]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    ready: bool = False
    handshake: str = ""  # why the last one of TLS failed
    status: int | None = None  # of the device's process, once it has ended
    ended: bool = False  # it came to its end

    def hear(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        if name == "@at":
            self.sent, self.came, self.connects = map(int, rest.split())
        elif name == "@ready":
            self.ready = True
        elif name == "@version":
            self.version = rest
        elif name == "@handshake":
            self.handshake = rest
        elif name == "@end":
            self.ended = True
        elif name.startswith("@") and all(word.isdigit() for word in rest.split()):
            self.told[name[1:]] = [int(word) for word in rest.split()]
        elif len(self.trouble) < 20:
            self.trouble.append(line)


@contextlib.contextmanager
def device(heap_kb: int, words: list[str]) -> Iterator[Sketch]:
    """The running device; `words` are the arguments of device.py."""
    with tempfile.TemporaryDirectory(prefix="flatmq-soak-") as folder:
        found = interpreter.command(f"{heap_kb}k")
        if found is None:
            raise ToolError(interpreter.MISSING)
        lib = compiled(Path(folder), LIBRARY)
        for name in SCRIPT:
            compile_module(HERE / f"{name}.py", lib / f"{name}.mpy", f"soak/{name}.py")
        process = Sketch([*found, "-m", "device", *words], interpreter.environment(lib))
        try:
            yield process
        finally:
            process.stop()


def follow(run: Run, peer: Peer, process: Sketch, faults: Faults, proxy: Proxy) -> Iterator[None]:
    """Turn until the device has ended and its last message came, or nothing more does."""
    patience = time.monotonic() + PATIENCE
    before = (0, 0, 0)
    while run.status is None or not peer.ended:
        peer.turn(run.ready)
        faults.turn(proxy)
        while not process.lines.empty():
            line = process.lines.get()
            if line is None:
                run.status = process.stop()
                patience = min(patience, time.monotonic() + DRAIN)
            else:
                run.hear(line)
        known = (peer.sent, peer.books.came, run.came)
        if run.status is None and known != before:
            before = known
            patience = time.monotonic() + PATIENCE
        if time.monotonic() > patience or run.status:
            if run.status is None:
                run.trouble.append(f"nothing new for {PATIENCE:g} s: the device is ended")
                run.status = process.stop() or 1
            return
        yield


def show(run: Run, peer: Peer, turns: Iterator[None], console: Console) -> None:
    with Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=console) as bars:
        up = bars.add_task("device → desk", total=run.messages)
        down = bars.add_task("desk → device", total=run.messages)
        for _ in turns:
            bars.update(up, completed=peer.books.came)
            bars.update(down, completed=run.came)


def figures(verdict: Verdict) -> str:
    """Return the table of figures, each with a word behind it."""
    rows = []
    for figure in verdict.figures:
        mark = "WRONG" if not figure.ok else "met" if figure.wanted else ""
        rows.append((figure.name, figure.text, figure.wanted, mark))
    return results.table(("device → desk / desk → device", "measured", "required", ""), rows)


def section(link: str, verdict: Verdict, facts: list[str]) -> str:
    command = "python -m flatmq_rigs soak" + ("" if link == "tcp" else f" --link {link}")
    return "\n".join(
        [
            f"## A soak{NAMES.get(link, '')}",
            "",
            f"`{command}`: MicroPython and paho-mqtt exchange numbered messages at every QoS "
            f"through a broker and a link that keeps breaking. {'; '.join(facts)}.",
            "",
            figures(verdict),
        ]
    )


def main(
    messages: int = MESSAGES,
    *,
    seed: int | None = None,
    link: str = "tcp",
    heap: int | None = None,
    mean: int = BYTES,
    document: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run the soak; return 0 if every figure is as required, otherwise 1.

    messages: in each direction. seed: of the faults; None takes another each time. link: one of
    `links.LINKS`. heap: of MicroPython, in KB; None takes what the link needs. mean: bytes between
    two faults. Raises ToolError, PeerError, BrokerError or InterpreterError when it
    cannot run.
    """
    console = console or (Console() if sys.stdout.isatty() else Console(width=WIDTH))
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    heap_kb = heap or HEAP_KB[link]
    client_id = f"soak-{secrets.token_hex(4)}"
    prefix = f"flatmq/{client_id}"
    # The proxy runs beside the desk's client in one process, and must not wait for its turn.
    sys.setswitchinterval(0.0005)
    with contextlib.ExitStack() as stack:
        log = Log(client_id)
        stack.callback(log.stop)
        listening = stack.enter_context(Listening(link, extra=MOSQUITTO, output=log.output))
        target, ca = listening.broker, listening.ca
        faults = Faults(seed, mean, HANDSHAKE[link])
        proxy = stack.enter_context(Proxy(target.host, listening.port, faults.rules))
        peer = Peer(target.host, target.port, prefix, messages)
        stack.callback(peer.stop)
        deadline = time.monotonic() + DRAIN
        while not peer.ready:
            peer.turn(False)
            if time.monotonic() > deadline:
                raise PeerError(f"the broker does not answer the desk within {DRAIN:g} s")
        what = f"MicroPython with a heap of {heap_kb} KB"
        console.print(
            f"{messages:,} messages each way between {what} and the {target.kind} broker at "
            f"{target.address}{NAMES.get(link, '')}; --seed {seed}",
            soft_wrap=True,
            highlight=False,
        )
        words = [proxy.host, str(proxy.port), client_id, prefix, str(messages), link]
        words += [str(TIMEOUT[link]), ca]
        process = stack.enter_context(device(heap_kb, words))
        run = Run(messages)
        began = time.monotonic()
        show(run, peer, follow(run, peer, process, faults, proxy), console)
        seconds = time.monotonic() - began
    for line in [*run.trouble, *peer.books.wrong]:
        console.print(f"[red]{line}[/]", soft_wrap=True)
    if not run.ended:
        if run.handshake:
            console.print(f"the last handshake that failed: {run.handshake}", soft_wrap=True)
        console.print(
            f"[bold]the device did not come to its end:[/] sent {run.sent:,}, received "
            f"{run.came:,}; the desk sent {peer.sent:,}, received {peer.books.came:,}; "
            f"--seed {seed}"
        )
        return 1
    broken_off = faults.early if ca else None
    republished = log.again, len(log.connections), log.republished
    counts = (republished, seconds, broken_off)
    verdict = Verdict(messages, peer.sent, peer.books, run.told, *counts)
    console.print(figures(verdict), markup=False, highlight=False, soft_wrap=True)
    happened = ", ".join(f"{faults.happened[kind]} × {kind}" for kind in KINDS)
    console.print(f"the link had {happened}; --seed {seed}", highlight=False)
    if not verdict.ok:
        for life in log.suspects:
            console.print(f"by connection: {', '.join(life)}", highlight=False, soft_wrap=True)
    if document:
        facts = [
            what.replace(" ", f" {run.version} ", 1), log.version or "mosquitto", happened,
            f"seed {seed}",
        ]  # fmt: skip
        name = SECTION if link == "tcp" else f"{SECTION}-{link}"
        results.write(document, name, section(link, verdict, facts))
    verdict_text = "nothing lost, nothing hung" if verdict.ok else "something is WRONG"
    console.print(f"[bold]{verdict_text}[/]")
    return 0 if verdict.ok else 1
