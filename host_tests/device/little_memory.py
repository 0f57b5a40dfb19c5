"""A heap that is full, for a while."""

import gc


def list_of_blocks():
    """Return a list for `fill`.

    It is no chain: a word on the stack that looks like the address of one would keep all of it.
    """
    return [None] * 1000


def fill(blocks, left):
    """Put blocks into a list, up to about `left` bytes before the heap is full."""
    spare = bytearray(left)
    at = 0
    for size in (2048, 256, 32, 0):
        try:
            while True:
                # A tuple takes the least memory that can be had.
                blocks[at] = bytearray(size) if size else (at, size)
                at += 1
        except MemoryError:
            pass
    del spare


def empty(blocks):
    """Let go of the blocks."""
    for n in range(len(blocks)):
        blocks[n] = None
    gc.collect()
