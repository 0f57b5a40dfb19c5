"""Look for a case in which the client and the oracle disagree, with hypothesis.

As a program, `python -m hostile.search [EXAMPLES]`, it prints the smallest one and fails if there
is one; `python -m hostile.search --case HEX` reports what comes of that case. What it drives is
the flatmq that Python finds first.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flatmq_rigs import certificates
from hostile import cases, drive, framed, grammar, secured
from hostile.oracle import Oracle
from hostile.oracle5 import Oracle5
from hostile.websocket_oracle import WebSocketOracle

HANGS = 60  # seconds for one case, which takes a millisecond or two
EXAMPLES = 600
LINKS = ("tcp", "websocket", "tls")


@contextmanager
def watched() -> Iterator[None]:
    """Have a case that goes on without end raise Stuck, wherever it is."""

    def stop(_signal, _frame) -> None:
        raise drive.Stuck(f"still at it after {HANGS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sizes(client) -> list[tuple[str, int]]:
    """Return what a client holds, and how much of it; it may not grow.

    What its router remembers of messages, in bytearrays, is in `names`.
    """
    return [
        (f"{name}.{field}", len(value))
        for name, part in (("client", client), ("router", client.router), ("link", held(client)))
        for field, value in vars(part).items()
        if isinstance(value, (memoryview, list))
        or (isinstance(value, bytearray) and name != "router")
    ]


def held(client):
    """Return the part of a client's link that may keep something."""
    return getattr(client.link, "socket", client.link)  # the WebSocket


def names(client) -> int:
    """The size of the longest topic name that is remembered, with what belongs to it."""
    kept = list(vars(client.router).values())
    each = [name for some in kept if isinstance(some, list) for name in some] + kept
    return max(len(name) for name in each if isinstance(name, bytearray))


def held_the_same() -> Callable[..., bool]:
    """Return what `marked` is to a run: it raises if a client holds more than at first."""
    held: list = []

    def same(client) -> bool:
        held.append(sizes(client))
        # A subscription that is given up leaves less.
        more = [now for before, now in zip(held[0], held[-1], strict=True) if now > before]
        assert not more, f"it holds {more}, not {held[0]}"
        # In MQTT 5 properties of up to 127 bytes are remembered with them, and both together.
        most = 64 if client.options["version"] < 5 else 128
        assert names(client) <= most, "the topic names seen last"
        return True

    return same


def oracle_of(data: bytes) -> Oracle:
    """Return the oracle that judges a case."""
    options = cases.decode(data)[0]
    return Oracle(options) if options.version < 5 else Oracle5(options)


def judged(data: bytes) -> Oracle:
    """Run a case; raise what is wrong with it, with what happened in its notes."""
    oracle = oracle_of(data)
    judge(data, oracle)
    return oracle


def judge(data: bytes, oracle: Oracle, link: str = "tcp") -> Counter[str]:
    """Run a case over a link, and have the oracle judge it. Return what came of its WebSockets.

    Where the client reads and writes just as over TCP, every event must be the same, too.
    """
    if link == "tcp":
        drive.run(data, oracle, held_the_same())
        return Counter()
    if link == "tls":
        secured.run(data, oracle, held_the_same(), str(certificates.loopback()))
        assert oracle.log == judged(data).log, "other events than without TLS"
        return Counter()
    below = WebSocketOracle(oracle)
    server = framed.run(data, oracle, held_the_same(), below)
    way = framed.way_of(data)
    if way == framed.STEADY:
        assert oracle.log == judged(data).log, "other events than without WebSocket"
    return below.counts + Counter(
        {f"way: {framed.WAYS[way]}": 1, "frames": server.frames, "frames changed": server.changed}
    )


def told(data: bytes, link: str = "tcp") -> str:
    """A case for people: what it is made of, and what came of it."""
    options, steps = cases.decode(data)
    lines = [f"case {data.hex()}", str(vars(options))]
    lines += [f"  {cases.NAMES[step]} {argument!r}" for step, argument in steps]
    oracle = oracle_of(data)
    try:
        judge(data, oracle, link)
    except (Exception, drive.Stuck):
        lines += [f"    {event}" for event in oracle.log[-30:]]
        lines.append(traceback.format_exc())
    return "\n".join(lines)


@functools.cache
def _below(n: int) -> st.SearchStrategy[int]:
    return st.integers(0, n - 1)


@st.composite
def hostile(draw: Callable) -> bytes:
    """A case in its form of bytes."""
    return grammar.case(lambda n: draw(_below(n))).data


def search(examples: int) -> None:
    """Judge that many cases; the same ones every time."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(hostile())
    def judge(data: bytes) -> None:
        with watched():
            try:
                judged(data)
            except drive.Stuck as e:  # hypothesis lets what is no Exception pass at once
                raise AssertionError(f"stuck: {e}") from e

    judge()


def main() -> int:
    """Search, and report."""
    parser = argparse.ArgumentParser(prog="hostile.search", description=__doc__)
    parser.add_argument("examples", type=int, nargs="?", default=EXAMPLES)
    parser.add_argument("--case", type=bytes.fromhex, metavar="HEX", help="report one case")
    parser.add_argument("--link", choices=LINKS, default="tcp", help="of --case; default: tcp")
    options = parser.parse_args()
    if options.case:
        print(told(options.case, options.link))
        return 0
    try:
        search(options.examples)
    except Exception:
        traceback.print_exc()
        return 1
    print("NOTHING FOUND")
    return 0


if __name__ == "__main__":
    sys.exit(main())
