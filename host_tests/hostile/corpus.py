"""The kept cases: one for every step of client and oracle, and for every error.

corpus.txt has a line for each: its name, then its bytes. `python -m hostile.corpus` makes the file
from scratch, from the rules, from chance with a seed, and from what the guided fuzzer has kept in
`build/fuzz`: cases in that order and the shorter first, each that takes a step or ends a
connection as none before did. `python -m hostile.corpus --judge` judges those in the file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.progress import track

from hostile import cases, chance, rules, search
from hostile.drive import LOST

HERE = Path(__file__).parent
FILE = HERE / "corpus.txt"
KEPT = HERE.parents[1] / "build" / "fuzz" / "corpus"
BY_CHANCE = 4000
FILES = frozenset(
    [str(HERE / name) for name in ("oracle.py", "strict.py")]
    + [search.drive.flatmq.client.__file__.replace("client", name)
       for name in ("client", "session", "router", "reader", "requests", "resend", "subscription",
                    "chunks", "connection", "message", "topic", "wire")]
)  # fmt: skip

# Kept even where they take no step that another one has not taken.
ALWAYS = ("in flight: ", "crafted: ", "found: ")

MESSAGE_AT_QOS_1 = b"\x32\x06\0\1c\0%cx"
CRAFTED: tuple[tuple[str, int, int, list[tuple]], ...] = (
    (
        "crafted: answers that come while others are half written",
        10, 0,
        [(cases.NEXT, 0), (cases.ROOM, 3)]
        + [
            (cases.FEED, MESSAGE_AT_QOS_1 % i + MESSAGE_AT_QOS_1 % (i + 1))
            for i in range(1, 60, 2)
        ],
    ),
    (
        "crafted: PUBACK behind PUBREC",
        10, 0,
        [
            (cases.NEXT, 0),
            (cases.PUBLISH, 2),
            (cases.FEED, b"\x50\2\0\5\x40\2\0\5"),
            (cases.SYNC, 0),
        ],
    ),
    (
        "crafted: bytes come before PINGREQ has left",
        8, 0,
        [
            (cases.NEXT, 0),
            (cases.PUBLISH, 1),
            (cases.NEXT, cases.CUT | cases.RAW),
            (cases.BLOCK, 31),
            (cases.FEED, b"\x20\2\1\0"),
            (cases.FEED, MESSAGE_AT_QOS_1 % 1),
            (cases.SYNC, 0),
        ],
    ),
    (
        "crafted: more answers than there is room for",
        10, 0,
        [(cases.NEXT, 0)]
        + [(cases.PUBLISH, 2)] * 8
        + [(cases.BLOCK, 31), (cases.FEED, b"".join(b"\x62\2\0%c" % i for i in range(1, 40)))],
    ),
)  # fmt: skip

Step = tuple[str, int, int]  # from one line of a file to another, or the end of a connection


def load(file: Path = FILE) -> dict[str, bytes]:
    """Return the cases in a file, by name."""
    lines = (line.rpartition(": ") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: bytes.fromhex(data) for name, _, data in lines}


def of_rule(rule: rules.Rule) -> bytes:
    """A case in which the bytes of a rule come."""
    first = 8  # rx_size 130
    first |= 1 if rule.options.get("version") == 3 else 0
    first |= 2 if rule.options.get("clean_session", True) else 0
    greeting = rule.given == "greeting"
    steps: list[tuple] = [(cases.NEXT, cases.CUT | cases.RAW if greeting else 0)]
    if rule.given == "subscribing":
        steps.append((cases.SUBSCRIBE, 2))
    elif rule.given.startswith("publishing"):
        steps.append((cases.PUBLISH, int(rule.given[-1])))
    return cases.encode(first, 0, [*steps, (cases.FEED, rule.data + rules.MESSAGE)])


def candidates() -> Iterator[tuple[str, bytes]]:
    """All that might be kept, by name."""
    for name, rule in rules.RULES.items():
        yield name.replace("\n", " "), of_rule(rule)
    for name, first, second, steps in CRAFTED:
        yield name, cases.encode(first, second, steps)
    by_chance = [case.data for case, _ in zip(chance.made(1), range(BY_CHANCE), strict=False)]
    for i, data in enumerate(sorted(by_chance, key=len)):
        yield f"by chance {i}", data
    if KEPT.is_dir():
        grown = sorted((path.read_bytes() for path in KEPT.iterdir()), key=lambda d: (len(d), d))
        for i, data in enumerate(grown):
            yield f"grown {i}", data


def steps_of(data: bytes, files: frozenset[str]) -> set[Step]:
    """Return the steps that client and oracle take in a case.

    A step goes from line to line of these files. How the connections of the case ended is
    returned with them.
    """
    steps: set[Step] = set()

    def enter(frame, _event, _arg):
        name = frame.f_code.co_filename
        if name not in files:
            return None
        before = frame.f_code.co_firstlineno

        def line(frame, event, _arg):
            nonlocal before
            steps.add((name, before, frame.f_lineno if event != "return" else 0))
            before = frame.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        log = search.judged(data).log
    finally:
        sys.settrace(None)
    # Of the packet that breaks a rule the type counts, and not the flags: "packet 0x41: length".
    lost = (event[2:] for event in log if event[0] == LOST)
    ends = {(detail[:10] + detail[11:], code, 0) for code, detail in lost}
    return steps | ends


def judge(file: Path) -> int:
    """Judge the cases in a file. Return 1 at the first that is wrong."""
    kept = load(file)
    for name, data in kept.items():
        try:
            with search.watched():
                search.judged(data)
        except (Exception, search.drive.Stuck) as e:
            print(f"WRONG: {name}: {e!r}")
            return 1
    print(f"{len(kept)} cases agree")
    return 0


def keep(file: Path, candidates: Iterable[tuple[str, bytes]], files: frozenset[str]) -> int:
    """Write to a file those candidates that take a step which none before them has taken.

    Only steps in these files count.
    """
    taken: set[Step] = set()
    kept: dict[str, bytes] = {}
    for name, data in track(list(candidates), "cases"):
        new = steps_of(data, files) - taken
        if new or name.startswith(ALWAYS):
            taken |= new
            kept[name] = data
    print(f"{len(kept)} kept, {len(taken):,} steps")
    lines = (f"{name}: {data.hex()}\n" for name, data in kept.items())
    file.write_text("".join(lines), encoding="utf-8")
    return 0


def main() -> int:
    """Make corpus.txt again; with `--judge`, judge what is in it."""
    if sys.argv[1:] == ["--judge"]:
        return judge(FILE)
    return keep(FILE, candidates(), FILES)


if __name__ == "__main__":
    sys.exit(main())
