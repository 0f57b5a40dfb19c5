"""Run a case over a link, and have the oracle judge it.

As a program, `python -m hostile.judge --case HEX` reports what comes of a case. What it drives is
the flatmq that Python finds first.
"""

import argparse
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostile import cases, drive, framed
from hostile.oracle import Oracle
from hostile.websocket_oracle import WebSocketOracle

HANGS = 60  # seconds for one case, which takes a millisecond or two
LINKS = ("tcp", "websocket")


class Finding(Exception):
    """A case that went wrong, as a text for people."""


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

    The list of messages that are not released may grow, and the topic name of the last one is any.
    """
    link = getattr(client.link, "socket", client.link)  # the WebSocket may keep something
    return [
        (f"{name}.{field}", len(value))
        for name, part in (("client", client), ("link", link))
        for field, value in vars(part).items()
        if (isinstance(value, (memoryview, list)) and field not in ("received", "blocks"))
        or (isinstance(value, bytearray) and field != "head")
    ]


def names(client) -> int:
    """The size of the longest topic name or properties that are remembered."""
    blocks = getattr(client, "blocks", None)  # in MQTT 5
    return max(map(len, getattr(client, "names", [b""]) + (blocks or [])))


def held_the_same() -> Callable[..., bool]:
    """Return what `marked` is to a run: it raises if a client holds more than at first."""
    held: list = []

    def same(client) -> bool:
        held.append(sizes(client))
        # A subscription that is given up leaves less.
        more = [now for before, now in zip(held[0], held[-1], strict=True) if now > before]
        assert not more, f"it holds {more}, not {held[0]}"
        # In MQTT 5 properties of up to 127 bytes are remembered with them.
        most = 128 if getattr(client, "blocks", None) else 64
        assert names(client) <= most, "the topic names seen last"
        return True

    return same


def run(data: bytes, link: str = "tcp", oracle: Oracle | None = None) -> Counter[str]:
    """Run a case over a link; raise what is wrong with it. Return what came of its WebSockets."""
    oracle = oracle or Oracle(cases.decode(data)[0])
    with watched():
        if link == "websocket":
            below = WebSocketOracle(oracle)
            server = framed.run(data, oracle, held_the_same(), below)
            below.counts.update({"frames": server.frames, "frames changed": server.changed})
            return below.counts
        drive.run(data, oracle, held_the_same())
    return Counter()


def told(data: bytes, link: str = "tcp") -> str:
    """A case for people: what it is made of, and what came of it."""
    options, steps = cases.decode(data)
    lines = [f"case {data.hex()}", str(vars(options))]
    lines += [f"  {cases.NAMES[step]} {argument!r}" for step, argument in steps]
    oracle = Oracle(options)
    try:
        run(data, link, oracle)
    except (Exception, drive.Stuck):
        lines += [f"    {event}" for event in oracle.log[-30:]]
        lines.append(traceback.format_exc())
    return "\n".join(lines)


def figures(data: bytes, link: str = "tcp") -> Counter[str]:
    """Return what came of a case, in numbers. Finding when it is wrong."""
    oracle = Oracle(cases.decode(data)[0])
    try:
        below = run(data, link, oracle)
    except (Exception, drive.Stuck) as e:
        raise Finding(told(data, link)) from e
    return below + Counter(
        {
            "cases": 1,
            "judged": oracle.packets,
            "streams": oracle.streams,
            "delivered": oracle.delivered,
            **{f"ended: {kind}": n for kind, n in oracle.ended.items()},
        }
    )


def main() -> int:
    """Report a case."""
    parser = argparse.ArgumentParser(prog="hostile.judge", description=__doc__)
    parser.add_argument("--case", type=bytes.fromhex, metavar="HEX", required=True)
    parser.add_argument("--link", choices=LINKS, default="tcp", help="default: tcp")
    options = parser.parse_args()
    print(told(options.case, options.link))
    return 0


if __name__ == "__main__":
    sys.exit(main())
