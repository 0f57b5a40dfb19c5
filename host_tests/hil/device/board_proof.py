"""The operations that allocate on this board: those of the host, counted by proof.py."""

import gc
import sys

import proof

try:
    from time import ticks_ms
except ImportError:
    ticks_ms = None


def prove(module, names, repeats, broker=None):
    """Print "@proof MODULE NAME KEPT REFUSED" for each operation of a module."""
    proof.REPEATS = repeats
    operations = __import__(module)
    for name in names:
        one = proof.Proof(broker)
        try:
            one.prove(getattr(operations, name))
            print("@proof", module, name, one.asked, one.kept, int(one.refused))
        except Exception as error:
            gc.enable()
            print("@failed", module, name, repr(error))
        gc.collect()
    del sys.modules[module]
    port = sys.modules.get("flatmq.port")
    if port:
        port.ticks_ms = ticks_ms  # the scripted peer has put its own clock there
