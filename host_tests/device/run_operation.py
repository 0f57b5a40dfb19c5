"""Run one operation on MicroPython: run_operation.py MODULE OPERATION STEPS VERSION [HOST PORT].

VERSION is that of MQTT: 4, 5, or 5+ with properties in each message. STEPS 0 asks whether the
operation allocates, and any other number whether the heap grows by so many steps. The last line is
what proof.py has seen.
"""

import gc
import sys

gc.collect()
module, name, steps, version = sys.argv[1:5]
broker = (sys.argv[5], int(sys.argv[6])) if len(sys.argv) > 5 else None

import nodelay  # noqa: E402, F401 (before the client)
import packets  # noqa: E402

packets.speak(version)
operation = getattr(__import__(module), name)

from proof import report  # noqa: E402 (the operation goes first into the heap)

report(operation, int(steps), broker)
