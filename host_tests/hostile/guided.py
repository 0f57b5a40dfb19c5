"""Look for cases that the client does not bear, guided by the coverage of client and oracle.

`python -m hostile.guided --seconds N` starts from the committed corpus and from what earlier runs
found in the folder `build/fuzz`, and keeps there what is new. At the first finding it fails, keeps
that, too, and says how to see it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

try:
    import atheris
except ImportError:
    sys.exit(
        "make fuzz needs atheris, which has wheels for CPython 3.10 to 3.13 on Linux, x86-64. "
        "Elsewhere: make fuzz-long, which is not guided, or a container of python:3.12"
    )

HERE = Path(__file__).parent
# Coverage of these decides which cases are kept. A module that is loaded before has none.
JUDGES = ("oracle", "oracle_parts", "strict")
HARNESS = [f"hostile.{p.stem}" for p in HERE.glob("*.py") if p.stem not in JUDGES]

with atheris.instrument_imports(include=["flatmq", "hostile"], exclude=HARNESS):
    import flatmq.chunks
    import flatmq.client
    import flatmq.connection
    import flatmq.message
    import flatmq.reader
    import flatmq.refused
    import flatmq.requests
    import flatmq.resend
    import flatmq.router
    import flatmq.session
    import flatmq.subscribing
    import flatmq.topic
    import flatmq.wire  # noqa: F401
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
        self.seconds = seconds
        self.kept = kept
        self.began = time.monotonic()
        self.shown = -1.0
        self.counts: Counter[str] = Counter()
        self.console = Console()
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self.progress = Progress(*columns, console=self.console)
        self.task = self.progress.add_task("", total=seconds)
        self.progress.start()

    def one(self, data: bytes) -> None:
        """Judge a case."""
        oracle = judge.Oracle(cases.decode(data)[0])
        try:
            judge.run(data, "tcp", oracle)
        except (Exception, judge.drive.Stuck) as e:
            self.found(data, e)
        self.counts["cases"] += 1
        self.counts["packets judged"] += oracle.packets
        self.counts["connections"] += oracle.streams
        self.counts["messages delivered"] += oracle.delivered
        passed = time.monotonic() - self.began
        if passed - self.shown > 0.5:
            self.shown = passed
            told = f"{self.counts['cases']:,} cases, {self.counts['packets judged']:,} packets"
            self.progress.update(self.task, completed=passed, description=told)
        if passed > self.seconds:
            self.end()

    def end(self) -> None:
        """Time is up, and nothing was found."""
        self.progress.stop()
        for what, n in self.counts.items():
            self.console.print(f"{what:20}{n:>14,}", highlight=False)
        kept = self.kept / "corpus"
        n = sum(1 for _ in kept.iterdir())
        self.console.print(f"{'cases kept':20}{n:>14,}   in {kept}", soft_wrap=True)
        self.console.print("nothing found")
        sys.stdout.flush()
        os._exit(0)  # from inside libFuzzer, which has no other way to end without a finding

    def found(self, data: bytes, e: BaseException) -> None:
        """Report the finding, and end."""
        self.progress.stop()
        path = self.kept / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        self.console.print(judge.told(data), markup=False, highlight=False, soft_wrap=True)
        self.console.print(f"FOUND: {e!r}", markup=False, highlight=False, soft_wrap=True)
        self.console.print(
            f"again: {sys.executable} -m hostile.guided --replay {path}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
        sys.stdout.flush()
        os._exit(1)


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
