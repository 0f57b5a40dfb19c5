"""Look for cases that the client does not bear, guided by the coverage of client and oracle.

`python -m hostile.guided --seconds N` starts from the committed corpus and from what earlier runs
found in the folder `build/fuzz`, and keeps there what is new. At the first finding it fails and
keeps that, too: `--replay` shows it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import sys
from pathlib import Path

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
    "engine", "message", "message", "alone", "dial", "rare.pieces",
    "rare.qos2", "reasons", "rare.strays", "subs", "subscribing", "rare.wild",
    "wire",
)  # fmt: skip

with atheris.instrument_imports(include=["flatmq", "hostile", "packets"], exclude=HARNESS):
    for name in CLIENT:
        importlib.import_module(f"flatmq.{name}")
    from hostile import cases, corpus, grammar, judge

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "fuzz"
LONGEST = 4096  # bytes of a case


def varied(data: bytes, longest: int, seed: int) -> bytes:
    """Another case: half of the time any bytes, else with other steps somewhere in it."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return atheris.Mutate(data, longest)
    _, steps = cases.decode(data)
    maker = grammar.Maker(chance.randrange)
    chance.choice((maker.action, maker.segment))()
    at = chance.randint(0, len(steps))
    end = at + chance.choice((0, 0, 1, 3))  # in the place of these
    steps[at:end] = maker.steps
    return cases.encode(data[0] if data else 0, data[1] if len(data) > 1 else 0, steps)[:longest]


def judged(data: bytes) -> None:
    """Judge a case. What is raised ends the process, and libFuzzer keeps the case."""
    try:
        judge.run(data)
    except (Exception, judge.drive.Stuck) as e:
        print(judge.told(data), f"FOUND: {e!r}", sep="\n", flush=True)
        raise RuntimeError("found") from e


def main() -> int:
    """Fuzz, or report one case."""
    parser = argparse.ArgumentParser(prog="hostile.guided", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
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
    given = {"max_len": LONGEST, "timeout": 0, "verbosity": 0, "seed": options.seed}
    given |= {"max_total_time": options.seconds, "artifact_prefix": f"{options.kept}/found-"}
    arguments = [f"-{name}={value}" for name, value in given.items()]
    atheris.Setup([sys.argv[0], str(folder), *arguments], judged, custom_mutator=varied)
    atheris.Fuzz()
    return 1  # it does not come back


if __name__ == "__main__":
    sys.exit(main())
