"""The kept cases: those of past faults, and one for each step of the client.

corpus.txt (MQTT 3.1.1 and 3.1) and corpus5.txt have a line for each: its name, then its bytes.
"found" and "crafted" are faults that the client once had; the others came by chance, and are few
that together take each step in the client and the oracle three times, if any case does. Add a line
for each finding; `python -m hostile.judge --case` shows the steps of one.

`python -m hostile.corpus VERSION` judges them with the flatmq that Python finds first.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostile import judge

HERE = Path(__file__).parent
FILES = {4: HERE / "corpus.txt", 5: HERE / "corpus5.txt"}


def load(version: int = 4) -> dict[str, bytes]:
    """Return the cases for a version of MQTT, by name."""
    kept = {}
    lines = FILES[version].read_text(encoding="utf-8").splitlines()
    for line in lines:
        name, _, data = line.rpartition(": ")
        kept[name] = bytes.fromhex(data)
    return kept


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
