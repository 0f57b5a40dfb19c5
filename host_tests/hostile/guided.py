"""Look for cases that the client does not bear, guided by the coverage of client and oracle.

`python -m hostile.guided --seconds N` starts from the committed corpus and from what earlier runs
found in the folder `build/fuzz`, and keeps there what is new. At the first finding it fails, keeps
that, too, and says how to see it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

try:
    import atheris
except ImportError:
    sys.exit(
        "this needs atheris, which has wheels for CPython 3.10 to 3.13 on Linux, x86-64. "
        "Elsewhere: python -m flatmq_rigs fuzz-long, which is not guided, or a container of "
        "python:3.12"
    )

HERE = Path(__file__).parent
# Coverage of these decides which cases are kept. A module that is loaded before has none.
JUDGES = ("oracle", "oracle_parts")
HARNESS = [f"hostile.{p.stem}" for p in HERE.glob("*.py") if p.stem not in JUDGES]

CLIENT = (
    "chunks", "client", "connection", "message", "reader", "refused", "requests", "resend",
    "router", "session", "subscribing", "topic", "wire",
)  # fmt: skip

with atheris.instrument_imports(include=["flatmq", "hostile", "packets"], exclude=HARNESS):
    for name in CLIENT:
        importlib.import_module(f"flatmq.{name}")
    from hostile import cases, corpus, grammar, judge

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "fuzz"
LONGEST = 4096  # bytes of a case


def varied(data: bytes, longest: int, seed: int) -> bytes:
    """Another case: half of the time by steps and packets, else by any bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return atheris.Mutate(data, longest)
    _, steps = cases.decode(data)

    def pick(n: int) -> int:
        return chance.randrange(n)

    at = pick(len(steps) + 1)
    way = pick(5)
    if way == 0 and steps:  # leave some out
        del steps[pick(len(steps)) :][: 1 + pick(3)]
    elif way == 1 and steps:  # one of them again
        steps.insert(at, steps[pick(len(steps))])
    elif way == 2 and steps:  # cut what is fed at once
        at = pick(len(steps))
        step, argument = steps[at]
        if step == cases.FEED and len(argument) > 1:
            n = 1 + pick(len(argument) - 1)
            steps[at : at + 1] = [(step, argument[:n]), (step, argument[n:])]
    else:
        maker = grammar.Maker(pick)
        if way == 3:
            maker.action()
        else:
            maker.segment()
        steps[at:at] = maker.steps
    return cases.encode(data[0] if data else 0, data[1] if len(data) > 1 else 0, steps)[:longest]


class Run:
    """So many seconds of it. `one` is given every case, and ends the process."""

    def __init__(self, seconds: float, kept: Path) -> None:
        self.kept = kept
        self.until = time.monotonic() + seconds
        self.counts: Counter[str] = Counter()
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self.progress = Progress(*columns)
        self.task = self.progress.add_task("", total=seconds)
        self.progress.start()

    def one(self, data: bytes) -> None:
        """Judge a case."""
        oracle = judge.Oracle(cases.decode(data)[0])
        try:
            judge.run(data, "tcp", oracle)
        except (Exception, judge.drive.Stuck) as e:
            self.found(data, e)
        counts = self.counts
        counts["cases"] += 1
        counts["packets judged"] += oracle.packets
        counts["connections"] += oracle.streams
        counts["messages delivered"] += oracle.delivered
        if time.monotonic() > self.until:
            counts["cases kept"] = sum(1 for _ in (self.kept / "corpus").iterdir())
            lines = [f"{what:20}{n:>14,}" for what, n in counts.items()]
            self.end(0, *lines, f"they are in {self.kept / 'corpus'}", "nothing found")
        text = f"{counts['cases']:,} cases, {counts['packets judged']:,} packets"
        passed = self.progress.tasks[self.task].elapsed
        self.progress.update(self.task, completed=passed, description=text)

    def found(self, data: bytes, e: BaseException) -> None:
        """Keep the finding and report it."""
        path = self.kept / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        again = f"again: {sys.executable} -m hostile.guided --replay {path}"
        self.end(1, judge.told(data), f"FOUND: {e!r}", again)

    def end(self, status: int, *lines: str) -> None:
        """Say this, and leave libFuzzer, which has no other way to end without a finding."""
        self.progress.stop()
        print(*lines, sep="\n", flush=True)
        os._exit(status)


def main() -> int:
    """Fuzz, or report one case."""
    parser = argparse.ArgumentParser(prog="hostile.guided", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one every time")
    parser.add_argument("--kept", type=Path, default=KEPT, help="Folder for new cases.")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="Report the result of a case.")
    options = parser.parse_args()
    if options.replay:
        print(judge.told(options.replay.read_bytes()))
        return 0
    folder = options.kept / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in corpus.load().items():
        (folder / hashlib.sha256(name.encode()).hexdigest()[:16]).write_bytes(data)
    run = Run(options.seconds, options.kept)
    arguments = [sys.argv[0], str(folder), f"-max_len={LONGEST}", "-timeout=0", "-verbosity=0"]
    atheris.Setup([*arguments, f"-seed={options.seed}"], run.one, custom_mutator=varied)
    atheris.Fuzz()
    return 1  # it does not come back


if __name__ == "__main__":
    sys.exit(main())
