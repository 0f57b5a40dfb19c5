"""The kept cases: those of the rules, those of past faults, and one for each step of the client.

corpus.txt (MQTT 3.1.1 and 3.1) and corpus5.txt have a line for each: its name, then its bytes.
"found" and "crafted" are faults that the client once had; the others came by chance, and are few
that together take each step in the client and the oracle three times, if any case does. Add a line
for each finding; `python -m hostile.judge --case` shows the steps of one.

`python -m hostile.corpus VERSION` judges them with the flatmq that Python finds first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostile import cases, judge, rules

HERE = Path(__file__).parent
FILES = {4: HERE / "corpus.txt", 5: HERE / "corpus5.txt"}


def load(version: int = 4) -> dict[str, bytes]:
    """Return the cases for a version of MQTT, by name; those of the rules are for 3.1.1."""
    kept = {}
    for name, rule in rules.RULES.items() if version == 4 else ():
        kept[name] = of_rule(rule)
        kept[f"{name}, byte by byte"] = of_rule(rule, (cases.SPLIT, 1))
    lines = FILES[version].read_text(encoding="utf-8").splitlines()
    for line in lines:
        name, _, data = line.rpartition(": ")
        kept[name] = bytes.fromhex(data)
    return kept


def of_rule(rule: rules.Rule, *before: tuple[int, int]) -> bytes:
    """A case in which the bytes of a rule come, after these steps."""
    first = 8  # rx_size 130
    first |= 1 if rule.version == 3 else 0
    first |= 2 if rule.clean_session else 0
    greeting = rule.given == "greeting"
    steps: list[tuple] = [(cases.NEXT, cases.CUT | cases.RAW if greeting else 0), *before]
    if rule.given == "subscribing":
        steps.append((cases.SUBSCRIBE, 6))
    elif rule.given.startswith("publishing"):
        steps += [(cases.PUBLISH, int(rule.given[-1])), (cases.SYNC, 0)]  # it has left
    return cases.encode(first, 0, [*steps, (cases.FEED, rule.data + rules.MESSAGE)])


def wrong(kept: Mapping[str, bytes], link: str = "tcp") -> Iterator[str]:
    """Judge these cases, and yield what is wrong with any of them."""
    for name, data in kept.items():
        try:
            judge.run(data, link)
        except (Exception, judge.drive.Stuck) as e:
            yield f"{name}: {e!r}"


def main() -> int:
    """Judge the cases of a version. Return 1 at the first that is wrong."""
    kept = load(int(sys.argv[1]))
    for what in wrong(kept):
        print(f"WRONG: {what}")
        return 1
    print(f"{len(kept)} cases agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
