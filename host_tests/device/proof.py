"""A proof that an operation allocates nothing.

It is measured in three ways, since each of them misses something.

asked    micropython.mem_total(): bytes asked for, even those given back at once, such as a frame
         on the heap; a board does not report it
kept     gc.mem_alloc() with the collector off: bytes that an operation leaves on the heap
refused  micropython.heap_lock(): whether an allocation was refused

An operation is a generator function that is given a Proof. Each `next` does it once, and yields
whether it had its effect. The first `next` prepares it and is the warm-up: the very same
operation, once. What must allocate in between stands between `pause` and `resume`.
"""

import gc

import micropython
from micropython import const

REPEATS = 50  # with the counters, and as often with the heap locked

# Boards do not count what is asked for.
_mem_total = getattr(micropython, "mem_total", lambda: 0)

_OFF = const(0)
_COUNTED = const(1)
_LOCKED = const(2)


class Proof:
    """`broker` is what a real peer's host and port are, None without one."""

    def __init__(self, broker=None):
        self.broker = broker
        self.asked = self.kept = 0
        self.refused = False
        self._way = _OFF
        self._locked = False
        self._total = self._alloc = 0

    def resume(self):
        """From here on nothing may be allocated."""
        if self._way:
            gc.collect()  # what a pause left, as the collector is off
        if self._way == _LOCKED:
            self._locked = True
            micropython.heap_lock()
        elif self._way == _COUNTED:
            self._alloc = gc.mem_alloc()
            self._total = _mem_total()

    def pause(self):
        """From here on it may, until `resume`."""
        if self._locked:
            micropython.heap_unlock()
            self._locked = False
        elif self._way == _COUNTED:
            self.asked += _mem_total() - self._total
            self.kept += abs(gc.mem_alloc() - self._alloc)

    def prove(self, operation):
        """Does the operation over and over, in every way; fails when it has no effect."""
        steps = operation(self)
        self._once(steps)
        gc.collect()
        gc.disable()
        self._way = _COUNTED
        for _ in range(REPEATS):
            self._once(steps)
        self._way = _LOCKED
        try:
            for _ in range(REPEATS):
                self._once(steps)
        except Exception:  # MemoryError; or it had no effect, as a poll without memory has none
            self.pause()
            self.refused = True
        gc.enable()

    def _once(self, steps):
        self.resume()
        done = next(steps)
        self.pause()
        if done is not True:
            raise AssertionError("the operation had no effect")


def growth(operation, steps, broker):
    """Bytes that the heap holds more, garbage apart, after that many steps of an operation."""
    run = operation(Proof(broker))
    before = 0
    for i in range(steps + 2):  # the first two prepare it: a table of names may grow once more
        if next(run) is not True:
            raise AssertionError("the operation had no effect")
        if i == 1:
            before = _held()
    return _held() - before


def report(operation, steps, broker):
    """Print, as the last line, what an operation allocates.

    With `steps`, print by how many bytes the heap grows in that many repetitions.
    """
    if steps:
        print("SEEN", growth(operation, steps, broker))
    else:
        proof = Proof(broker)
        proof.prove(operation)
        print("SEEN", proof.asked, proof.kept, int(proof.refused))


def _held():
    gc.collect()
    gc.collect()  # what the first one finalized
    return gc.mem_alloc()
