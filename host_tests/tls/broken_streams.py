"""Break the TLS streams between clients and a real broker, in either direction and at any byte.

`python -m flatmq_rigs broken-streams --streams N` has clients on both interpreters connect
through a proxy that changes bytes of the handshake or of what comes later: bits flip, bytes are
changed, lost, doubled, inserted, moved. Each such connection must end with an error that the docs
name, or TLS must have done without those bytes. Nothing wrong may be delivered, and on the next
connection, which is clean, nothing may be missing. What is changed depends on `--seed`; what TLS
makes of its random numbers does not.
"""

import argparse
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from conftest import PYTHONS
from flatmq_rigs import results
from flatmq_rigs.proxy import DOWN, UP, Direction, Proxy, Rules, Way
from scenario_child import HEAP, ScenarioError, play
from tls.secure_broker import SecureBroker

HERE = Path(__file__).parent
KINDS = frozenset({"tls", "closed", "timeout"})  # of client.error: see docs/tls.md and the guide
IDLE = 0.3  # seconds: a stream that lacks bytes stands still, and is cut then
WAITS = 50  # one stream in so many is not cut, so that the client has to find out
PASSES = 40_000  # bytes after which a connection is cut that has survived the change
# Bytes at the start of each direction among which half of the changes are: the handshake.
HANDSHAKE = {UP: 800, DOWN: 1400}
LATER = 5000
LONGEST = 40  # bytes that are lost, doubled or inserted at once
WAYS = ("bit", "byte", "lost", "doubled", "inserted", "swapped", "zeros")


class Broken(AssertionError):
    """Something happened to a client that may not."""


class Spoiler:
    """Changes the bytes of one direction at one place; `name` says how, `is_done` if it has."""

    def __init__(self, chance: random.Random, way: Direction) -> None:
        self.name = chance.choice(WAYS)
        self.place = chance.randrange(HANDSHAKE[way] if chance.randrange(2) else LATER)
        self.is_done = False
        self._size = chance.randint(1, LONGEST)
        self._noise = chance.randbytes(self._size)
        self._bit = 1 << chance.randrange(8)
        self._passed = 0

    def __call__(self, data: bytes) -> bytes:
        at = self.place - self._passed
        self._passed += len(data)
        if self.is_done or at >= len(data):
            return data
        changed = data[:at] + self._change(data[at:])
        self.is_done = changed != data
        return changed

    def _change(self, data: bytes) -> bytes:
        size = min(self._size, len(data))
        if self.name == "bit":
            return bytes([data[0] ^ self._bit]) + data[1:]
        if self.name == "byte":
            return self._noise[:1] + data[1:]
        if self.name == "lost":
            return data[size:]
        if self.name == "doubled":
            return data[:size] + data
        if self.name == "inserted":
            return self._noise + data
        if self.name == "swapped":
            return data[size:] + data[:size]
        return bytes(size) + data[size:]


class Child(NamedTuple):
    """A client: an interpreter, its listener, and arguments of TLS."""

    python: str
    listener: str
    files: tuple[str, ...]


CHILDREN = (
    Child("cpython", "broker", ("ca.der",)),  # TLS 1.3
    Child("cpython", "older", ("ca.der", "client.der", "client.key.der")),  # TLS 1.2
    Child("micropython", "broker", ("ca.der",)),
    Child("micropython", "older", ("ca.der", "client.der", "client.key.der")),
)
PLAIN = Child("cpython", "plain", ())  # without TLS, for a test of the test


def break_one(broker: SecureBroker, child: Child, rounds: int, seed: str) -> Counter[str]:
    """Have a client play so many rounds. Broken says what may not have happened."""
    spoilers: list[tuple[Direction, Spoiler]] = []

    def rules(count: int) -> Rules:
        chance = random.Random(f"{seed}:{count}")
        way = chance.choice((UP, DOWN))
        spoiler = Spoiler(chance, way)
        spoilers.append((way, spoiler))
        idle = None if chance.randrange(WAITS) == 0 else IDLE
        up, down = (Way(PASSES, change=spoiler if way == each else None) for each in (UP, DOWN))
        return Rules(up, down, idle=idle)

    ended: Counter[str] = Counter()
    files = [broker.path(name) for name in child.files] or ["-"]
    port = broker.ports[child.listener]
    with Proxy("127.0.0.1", port, rules) as proxy:
        try:
            lines = play(
                child.python,
                HERE / "broken_client.py",
                *(f"{child.python}-{child.listener}-{seed.replace(':', '-')}", str(rounds)),
                *(str(proxy.port), str(port), *files),
                heap=HEAP,
                deadline=300 + 10 * rounds,
                hear=lambda words: ended.update([words[1]] if words[0] == "@lost" else []),
            )
        except ScenarioError as e:
            raise Broken(f"{child.python}, {child.listener}, seed {seed}: {e}") from e
    where = f"{child.python}, {child.listener}, seed {seed}, round {sum(ended.values())}"
    last = lines[-2].split()
    if last[0] != "@done":
        raise Broken(f"{where}: {lines[-2]}")
    if int(last[2]) > 0:
        raise Broken(f"{where}: the heap holds {last[2]} bytes more")
    if set(ended) - KINDS:
        odd = [line for line in lines if line.startswith("@lost") and line.split()[1] not in KINDS]
        raise Broken(f"{where}: {odd}")
    done = [(way, spoiler) for way, spoiler in spoilers if spoiler.is_done]
    counts = Counter({"streams": len(spoilers), "changed": len(done)})
    counts.update(f"ended: {kind}" for kind in ended.elements())
    counts.update(f"changed: {spoiler.name}" for _, spoiler in done)
    counts.update(f"way: {way}" for way, _ in done)
    counts.update("early" for way, spoiler in done if spoiler.place < HANDSHAKE[way])
    return counts


def break_all(
    broker: SecureBroker, streams: int, seed: int, each_kind: int = 1
) -> dict[str, Counter[str]]:
    """Break so many streams, with that many clients of each kind, all at once.

    Returns what came of it by interpreter.
    """
    counts = {python: Counter[str]() for python in PYTHONS}
    found: list[Exception] = []
    children = CHILDREN * each_kind
    rounds = -(-streams // len(children))

    def one(number: int, child: Child) -> None:
        try:
            got = break_one(broker, child, rounds, f"{seed}:{number}")
        except Exception as e:
            found.append(e)
        else:
            counts[child.python] += got

    threads = [threading.Thread(target=one, args=each) for each in enumerate(children)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if found:
        raise found[0]
    return counts


ROWS = {
    "streams": "connections through the proxy",
    "changed": "streams that were changed",
    "early": "of them in the first bytes, most of which are the handshake",
    "way: up": "of what the client sends",
    "way: down": "of what the broker sends",
    **{f"changed: {name}": f"changed: {name}" for name in WAYS},
    **{f"ended: {kind}": f"connections that ended: {kind}" for kind in sorted(KINDS)},
}


def section(counts: dict[str, Counter[str]], seed: int, seconds: float) -> str:
    """Return the figures of a run in which nothing was found, as Markdown."""
    rows = [
        (what, *(f"{counts[python][name]:,}" for python in PYTHONS)) for name, what in ROWS.items()
    ]
    return f"""\
## Broken TLS streams

`python -m flatmq_rigs broken-streams`: seed {seed}; {seconds:,.0f} s. A proxy changes each
connection in one place, from a bit to {LONGEST} bytes; a clean connection follows. No wrong
message was delivered, none at QoS 1 or 2 was lost, and no heap was kept.

{results.table(("", "CPython", "MicroPython"), rows)}
"""


def main() -> int:
    """Break streams, and report; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="broken-streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=200, help="default: 200")
    parser.add_argument(
        "--clients", type=int, default=1, help="clients of each kind at once; default: 1"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--results", type=Path, help="the document for the figures")
    options = parser.parse_args()
    began = time.monotonic()
    broker = SecureBroker()
    try:
        counts = break_all(broker, options.streams, options.seed, options.clients)
    except Broken as e:
        print(e)
        return 1
    finally:
        broker.stop()
    text = section(counts, options.seed, time.monotonic() - began)
    print(text)
    if options.results:
        results.write(options.results, "fuzz-tls", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
