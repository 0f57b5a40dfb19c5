"""Runs one operation on MicroPython: `run_operation.py MODULE OPERATION STEPS [HOST PORT]`.

STEPS 0 asks whether it allocates, and any other number whether the heap grows by so many steps.
The last line is what proof.py has seen.
"""

import gc
import sys

gc.collect()
module, name, steps = sys.argv[1:4]
broker = (sys.argv[4], int(sys.argv[5])) if len(sys.argv) > 4 else None
operation = getattr(__import__(module), name)

from proof import report  # noqa: E402 (the operation goes first into the heap)

report(operation, int(steps), broker)
