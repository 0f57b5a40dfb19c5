"""Load a module with ever more memory, and each time again with enough of it.

It prints how often memory was too short, and how often the second load failed.
"""

import gc

from flatmq import port
from little_memory import empty, fill, list_of_blocks


def attempt():
    """Return whether a module could be loaded."""
    try:
        port.load("reasons", "").reason  # noqa: B018 - what was loaded has contents
    except MemoryError:
        return False
    return True


def main():
    blocks = list_of_blocks()
    short = deaf = 0
    for left in range(0, 4000, 32):
        gc.collect()
        fill(blocks, left)
        short += not attempt()
        empty(blocks)
        deaf += not attempt()
        port.drop("reasons")
    print("SEEN", short, deaf)


main()
